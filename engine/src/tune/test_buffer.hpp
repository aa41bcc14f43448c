// Test buffers in any memory of a node, whose contents can be checked byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "driver/cuda_driver.hpp"
#include "driver/resources.hpp"
#include "topology/node.hpp"

namespace polypath {

/// An owned buffer: device memory of a GPU, in its primary context, or pinned host memory that is
/// mapped in every context. fill, poison and first_difference work synchronously; transfers of the
/// buffer must have completed before, and the bytes are in place when they return. Not thread-safe;
/// different buffers are independent. Every member may throw DriverError.
class TestBuffer {
 public:
  /// `memory` must be of `node`, `bytes` positive. Host memory is allocated in its NUMA domain,
  /// from the context of the nearest GPU. `driver` must outlive the buffer.
  /// `is_pageable`: host memory that CUDA does not know, all of it touched.
  TestBuffer(const CudaDriver& driver, const Node& node, MemoryId memory, std::uint64_t bytes,
             bool is_pageable = false);
  ~TestBuffer();
  TestBuffer(const TestBuffer&) = delete;
  TestBuffer& operator=(const TestBuffer&) = delete;

  /// Usable with cuMemcpyAsync whether it is device or host memory.
  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_; }
  [[nodiscard]] MemoryId memory() const noexcept { return memory_; }
  /// The primary context that the buffer was allocated in.
  [[nodiscard]] CUcontext context() const noexcept { return context_.get(); }

  /// Writes the pattern `seed` (tune/pattern.hpp) over the whole buffer.
  void fill(std::uint64_t seed);
  /// Writes one value over the whole buffer, so that a byte that nothing wrote is found.
  void poison(std::uint8_t value = 0xA5);
  /// Offset of the first byte that is not as fill(seed) would have left it; nothing when all are.
  [[nodiscard]] std::optional<std::uint64_t> first_difference(std::uint64_t seed) const;

 private:
  class PinnedBlock;

  [[nodiscard]] std::span<std::byte> host_bytes() const noexcept;

  const CudaDriver& driver_;
  MemoryId memory_;
  std::uint64_t bytes_;
  PrimaryContext context_;
  CUdeviceptr address_ = 0;
  bool is_pageable_;
  /// By which device memory is filled and checked; kept, because allocating and freeing pinned
  /// memory waits for all work of the GPU.
  std::unique_ptr<PinnedBlock> block_;
};

}  // namespace polypath
