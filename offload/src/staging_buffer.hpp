// GPU memory for buffers that a foreign communicator takes and polypath's kernels do not: host
// memory, or memory that is not aligned to its elements. Only this rank knows of them, so it alone
// stages them, and the call stays polypath's on all ranks.
//
// Pageable host memory, which NCCL's kernels reach on some machines, has pinned memory in between:
// the driver's copies from and to it would block the calling thread, which may have to make the
// calls of other ranks. A function on the stream copies between the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/call_order.hpp"
#include "comm/comm_handle.hpp"
#include "driver/cuda_driver.hpp"
#include "driver/resources.hpp"

namespace polypath {

/// One for each communicator; one thread at a time. Functions throw DriverError.
///
/// Calls use one piece of memory one after another, on all streams and in all graphs. A larger call
/// makes a larger piece, at least twice as large, so that all pieces together are less than twice
/// the last one. Graphs may be launched again: their pieces stay.
class StagingBuffer final : public CommExtension {
 public:
  StagingBuffer(const CudaDriver& driver, std::shared_ptr<const PrimaryContext> place);
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;
  /// Frees all memory, unless the GPU was reset. What uses it must have completed.
  ~StagingBuffer() override;

  /// Memory for work on this stream, after all earlier uses. `may_wait`: the GPU's work does not
  /// wait for what the calling thread issues later; only then is memory freed, since cuMemFree
  /// waits for that work.
  CUdeviceptr acquire(std::size_t bytes, CUstream stream, bool may_wait);
  /// Copies between a buffer of the program, in memory of any kind, and the acquired memory, from
  /// `offset` on; on the stream, without blocking.
  void copy_in(CUdeviceptr from, std::size_t offset, std::size_t bytes, CUstream stream);
  void copy_out(CUdeviceptr to, std::size_t offset, std::size_t bytes, CUstream stream);
  /// After the work.
  void release(CUstream stream);

 private:
  struct Piece {
    CUdeviceptr memory = 0;
    std::size_t bytes = 0;
    bool is_captured = false;
    std::byte* pinned = nullptr;  ///< of the same size; null: none was needed
  };
  [[nodiscard]] bool is_pageable(CUdeviceptr memory) const;
  /// The address of `offset` in the pinned memory of the latest piece.
  std::byte* pinned(std::size_t offset);
  void copy_on_host(void* to, const void* from, std::size_t bytes, CUstream stream);
  CUresult free_piece(const Piece& piece) const noexcept;
  void grow(std::size_t bytes, bool may_wait);
  CUresult add(std::size_t bytes);
  /// Frees the pieces that no graph has. What used them must have completed.
  void free_pieces() noexcept;
  [[nodiscard]] bool is_idle() const { return !is_lost_ && !order_.in_flight(); }

  const CudaDriver& driver_;
  std::shared_ptr<const PrimaryContext> place_;
  std::vector<Piece> pieces_;  // the last one is the largest, and the one that calls use
  CallOrder order_;
  std::uint64_t capture_ = 0;  // of the stream between acquire() and release()
  bool is_lost_ = false;       // a use could not be recorded
};

}  // namespace polypath
