// GPU memory that something takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "driver/cuda_driver.hpp"

namespace polypath {

/// Compares the free memory of GPUs now with that at its construction. Others who use the GPUs disturb
/// it. Every member may throw DriverError.
class MemoryTaken {
 public:
  /// `contexts`: one a GPU, each GPU once. `driver` must outlive it.
  MemoryTaken(const CudaDriver& driver, std::vector<CUcontext> contexts);

  /// Bytes, the sum over the GPUs; nothing when a GPU has more free memory than before: somebody freed
  /// some.
  [[nodiscard]] std::optional<std::uint64_t> bytes() const;

 private:
  [[nodiscard]] std::size_t free_on(CUcontext context) const;

  const CudaDriver& driver_;
  std::vector<CUcontext> contexts_;
  std::vector<std::size_t> before_;
};

}  // namespace polypath
