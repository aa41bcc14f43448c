// One piece of staging memory, in a GPU or in the host, that copies of several GPUs reach. It is
// made while programs run, and by calls that do not wait for what their streams hold, where the
// driver has such calls.
#pragma once

#include <cstdint>
#include <memory>

#include "driver/cuda_driver.hpp"
#include "exec/pinned_budget.hpp"
#include "topology/node.hpp"

namespace polypath {

/// Not thread-safe. Frees itself; by then nothing may use it any more, unless it is left.
class StagingMemory {
 public:
  /// `bytes` in `memory`; `context` of `gpu`: the memory's own, or for host memory one next to it.
  /// Host memory is taken from `pinned`. Throws DriverError.
  StagingMemory(std::shared_ptr<const CudaDriver> driver, const Node& node, MemoryId memory,
                std::uint64_t bytes, int gpu, CUcontext context, PinnedBudget& pinned);
  ~StagingMemory();
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;

  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }
  [[nodiscard]] CUcontext context() const noexcept { return context_; }
  /// The context was reset, and took the memory with it: the driver is not asked to free it.
  void abandon() noexcept { abandoned_ = true; }
  /// Work under way may use it to the end of the process: it is not freed.
  void leave() noexcept {
    is_left_ = true;
    share_.leave();
  }
  /// Lets work of `gpu`'s context read and write it, next to what peer access gives. Throws
  /// DriverError.
  void enable_access(int gpu);

 private:
  /// How it was made.
  enum class Kind : std::uint8_t {
    allocated,   ///< cuMemAlloc, cuMemHostAlloc: these may wait for all work of a context
    registered,  ///< pages of the process, page-locked
    mapped,      ///< cuMemCreate and cuMemMap: they wait for nothing
  };
  [[nodiscard]] Kind kind_for(MemoryId memory, int gpu) const;
  void allocate(MemoryId memory, int domain);
  void touch(int domain) const;
  void register_pages(int domain);
  void map(const CUmemLocation& location);

  std::shared_ptr<const CudaDriver> driver_;
  bool is_gpu_;
  std::uint64_t bytes_;
  CUcontext context_;
  bool abandoned_ = false;
  bool is_left_ = false;
  Kind kind_ = Kind::allocated;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;  // of what is mapped
  PinnedBudget::Share share_;                // of host memory
};

}  // namespace polypath
