// A transfer whose chunks are all staged: the copies that a measurement issues as a graph, or by streams.
// A plain value; addresses are given when they are used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver/cuda_driver.hpp"
#include "exec/devices.hpp"
#include "plan/route.hpp"
#include "topology/node.hpp"

namespace polypath {

/// Where one run of the transfer reads, stages and writes; each of the transfer's size.
struct StagedAddresses {
  CUdeviceptr src = 0;
  CUdeviceptr staging = 0;
  CUdeviceptr dst = 0;
};

/// One copy of the transfer.
struct StagedCopy {
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
  std::uint64_t bytes = 0;
  MemoryId to;
  MemoryId from;
  CUcontext context = nullptr;  ///< that issues it
};

/// `chunks` chunks of about one size, each carried from `src` to `via` (leg 0) and from there to `dst`
/// (leg 1). A GPU issues the copies that leave its memory; what leaves host memory is issued by the GPU
/// that it goes to.
class StagedTransfer {
 public:
  static constexpr std::uint64_t kLeastChunk = 256;  ///< bytes; chunks begin at multiples of it

  /// Makes the contexts of the GPUs, and allows the peer access that the legs need. `route` is a staged
  /// route from `src` to `dst` of `node`. Throws InvalidArgument when a chunk would be smaller than
  /// kLeastChunk, DriverError.
  StagedTransfer(const Node& node, Devices& devices, const Route& route, std::uint64_t bytes,
                 std::size_t chunks);

  [[nodiscard]] std::size_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] CUcontext context(int leg) const noexcept { return leg == 0 ? first_ : second_; }
  [[nodiscard]] StagedCopy copy(std::size_t chunk, int leg, const StagedAddresses& at) const;

 private:
  [[nodiscard]] std::uint64_t offset(std::size_t chunk) const noexcept;

  MemoryId src_;
  MemoryId via_;
  MemoryId dst_;
  std::uint64_t bytes_;
  std::size_t chunks_;
  CUcontext first_ = nullptr;
  CUcontext second_ = nullptr;
};

}  // namespace polypath
