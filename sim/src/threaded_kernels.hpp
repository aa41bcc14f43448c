// Kernels in functional mode: one thread runs those of all GPUs of the process, which take turns,
// so that they can wait for one another, and for kernels of other processes.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "kernel_runner.hpp"

namespace polypath::sim {

/// Lives until the process ends: its thread is never joined.
class ThreadedKernels : public KernelRunner {
 public:
  /// `seed`: of the order of turns and stores; 0: as few of both as the kernels need, and blocks
  /// folded, as with `folds`.
  ThreadedKernels(const KernelEnvironment& environment, std::uint64_t seed, bool folds,
                  bool whole_lines)
      : environment_(environment),
        seed_(seed),
        folds_(folds || seed == 0),
        whole_lines_(whole_lines) {}

  void begin(std::shared_ptr<KernelRun> run) override;

 private:
  [[noreturn]] void work();

  const KernelEnvironment environment_;
  const std::uint64_t seed_;
  const bool folds_;
  const bool whole_lines_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::vector<std::shared_ptr<KernelRun>> begun_;  // not yet known to the machine
  bool has_thread_ = false;
};

}  // namespace polypath::sim
