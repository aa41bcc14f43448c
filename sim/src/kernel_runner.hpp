// Kernels that were launched: run by their host builds (simt/), in virtual time or on a thread of
// the driver.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda_api.hpp"
#include "memory.hpp"
#include "operation.hpp"
#include "simt/machine.hpp"

namespace polypath::sim {

class Driver;

/// What a launch runs.
struct KernelCall {
  const simt::HostKernel* host_kernel = nullptr;
  CUcontext context = nullptr;
  unsigned blocks = 0;
  unsigned threads = 0;  ///< of a block
  std::size_t shared_bytes = 0;
  std::vector<std::vector<std::byte>> arguments;
  bool begins_early = false;  ///< programmatic stream serialization
};

/// Global memory, as the threads of one running kernel reach it.
class KernelMemory : public simt::MemorySystem {
 public:
  /// `is_locked`: the machine runs under the driver's lock.
  KernelMemory(Driver& driver, CUcontext context, int device, bool is_locked)
      : driver_(driver), context_(context), device_(device), is_locked_(is_locked) {}

  std::byte* at(std::uintptr_t address, std::size_t bytes, bool writes) override;
  bool is_local(std::uintptr_t address) override {
    return location(address) == MemoryId::gpu(device_);
  }

 protected:
  [[nodiscard]] MemoryId location(std::uintptr_t address);
  [[nodiscard]] int device() const noexcept { return device_; }

 private:
  struct Reached {
    AllocationPtr allocation;
    bool may_write = false;
  };
  const Reached& find(std::uintptr_t address);
  Reached look_up(std::uintptr_t address);

  Driver& driver_;
  const CUcontext context_;
  const int device_;
  const bool is_locked_;
  std::map<std::uintptr_t, Reached> reached_;  // by base; memory in use is not given back
  const Reached* last_ = nullptr;
};

/// One launch, from its issue to its end.
struct KernelRun {
  KernelCall call;
  int device = 0;
  bool is_begun = false;
  std::string error;                   ///< of a run that has ended; "" for success
  std::atomic<bool> has_ended{false};  ///< set last
  std::unique_ptr<simt::MemorySystem> outside;
};

/// Runs kernels.
class Kernels {
 public:
  virtual ~Kernels() = default;
  /// Called under the driver's lock, when everything before it on its stream has ended.
  virtual void begin(std::shared_ptr<KernelRun> run) = 0;

 protected:
  /// As the machine takes it; folded if `folds`.
  [[nodiscard]] static simt::Launch launch_of(const KernelRun& run, int multiprocessors,
                                              bool folds);
};

}  // namespace polypath::sim
