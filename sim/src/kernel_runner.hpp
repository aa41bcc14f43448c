// What runs kernels: their host builds (simt/), in virtual time (virtual_kernels.hpp) or on a
// thread of the driver (threaded_kernels.hpp). Launches are in kernels.hpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda_api.hpp"
#include "kernel_call.hpp"
#include "memory.hpp"
#include "simt/machine.hpp"

namespace polypath::sim {

class Contexts;
class DriverMutex;
class Pools;
struct Counters;

/// What kernels reach of the driver. All of it outlives them. `mutex` guards the rest.
struct KernelEnvironment {
  const Node& node;
  DriverMutex& mutex;
  const Memory& memory;
  const Contexts& contexts;
  const Pools& pools;
  Counters& counters;
};

/// Global memory, as the threads of one running kernel reach it.
class KernelMemory : public simt::MemorySystem {
 public:
  /// `is_locked`: the machine runs under the driver's lock.
  KernelMemory(const KernelEnvironment& environment, CUcontext context, int device, bool is_locked)
      : environment_(environment), context_(context), device_(device), is_locked_(is_locked) {}

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

  const KernelEnvironment environment_;
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
class KernelRunner {
 public:
  virtual ~KernelRunner() = default;
  /// Called under the driver's lock, when everything before it on its stream has ended.
  virtual void begin(std::shared_ptr<KernelRun> run) = 0;

 protected:
  /// As the machine takes it; folded if `folds`.
  [[nodiscard]] static simt::Launch launch_of(const KernelRun& run, int multiprocessors,
                                              bool folds);
};

}  // namespace polypath::sim
