// Source and destination of a transfer whose bytes are checked.
#pragma once

#include <cstdint>

#include "driver/cuda_driver.hpp"
#include "topology/node.hpp"
#include "tune/buffers.hpp"

namespace polypath {

/// Two buffers of one size, the source with random contents. Transfers must have completed before the
/// destination is poisoned or checked. Every member may throw DriverError.
class CheckedPair {
 public:
  /// As TestBuffer. `driver` must outlive it.
  CheckedPair(const CudaDriver& driver, const Node& node, MemoryId src, MemoryId dst,
              std::uint64_t bytes);

  [[nodiscard]] CUdeviceptr src() const noexcept { return src_.address(); }
  [[nodiscard]] CUdeviceptr dst() const noexcept { return dst_.address(); }

  /// Fills the destination with what the source does not hold.
  void poison() { dst_.poison(); }
  /// Throws Error, which names `way`, when a byte of the destination is not that of the source.
  void verify(const char* way) const;

 private:
  TestBuffer src_;
  TestBuffer dst_;
  std::uint64_t seed_ = 0;
};

}  // namespace polypath
