// GPU memory for buffers that NCCL takes and polypath's kernels do not (host memory, what is not
// aligned to its elements): only this rank knows of them, so they are mended on this rank alone,
// and the call stays polypath's on all.
//
// Host memory that is not pinned, which NCCL's kernels reach on some machines, has pinned memory in
// between: the driver's copies from and to it would block the calling thread, which may have to
// make the calls of other ranks. A function on the stream copies between the two.
#pragma once

#include <cstddef>
#include <vector>

#include "nccl/buffer_order.hpp"
#include "nccl/cuda.hpp"

namespace polypath::nccl {

/// Of one communicator; one thread at a time.
///
/// Calls have one piece of memory one after another, as their kernels run; those in graphs too. A
/// larger call has a larger piece made, at least twice as large, so that all of them are less than
/// twice the last one. Graphs may be launched again: their pieces stay.
class StagingBuffer {
 public:
  StagingBuffer() noexcept = default;
  explicit StagingBuffer(CUcontext context) noexcept : context_(context) {}
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(StagingBuffer&& other) noexcept;
  /// Gives all of it back; what uses it must have completed.
  ~StagingBuffer();

  /// Memory for work on this stream, after all that had it before. 0: there is none.
  /// `may_wait`: the GPU's work does not wait for what the calling thread issues later; only then
  /// is memory freed, since cuMemFree waits for that work.
  CUdeviceptr take(std::size_t bytes, CUstream stream, bool may_wait) noexcept;
  /// Copies between a buffer of the program's, of any kind, and the memory that was taken, from
  /// `offset` on; on the stream, without blocking. False: the driver failed.
  bool copy_in(const void* from, std::size_t offset, std::size_t bytes, CUstream stream) noexcept;
  bool copy_out(void* to, std::size_t offset, std::size_t bytes, CUstream stream) noexcept;
  /// After the work. False: nothing can be put after it.
  bool done(CUstream stream) noexcept;
  /// The context is gone, and the memory with it: the driver is not called for it any more.
  void forget() noexcept { context_ = nullptr; }

 private:
  struct Piece {
    CUdeviceptr memory = 0;
    std::size_t bytes = 0;
    bool is_captured = false;
    std::byte* pinned = nullptr;  ///< of the same size; null: none was needed
  };
  /// What a function on a stream copies.
  struct HostCopy {
    void* to;
    const void* from;
    std::size_t bytes;
    bool is_captured;  ///< it may run again
  };
  [[nodiscard]] bool is_pageable(const void* memory) const noexcept;
  /// The pinned memory of the latest piece; null: there is none.
  std::byte* pinned() noexcept;
  bool copy_on_host(void* to, const void* from, std::size_t bytes, CUstream stream) noexcept;
  static void CUDA_CB run_copy(void* copy);
  CUresult free_piece(const Piece& piece) noexcept;
  bool grow(std::size_t bytes, bool may_wait) noexcept;
  bool add(std::size_t bytes) noexcept;
  /// Of pieces that no graph has; what used them must have completed.
  void free_pieces() noexcept;

  CUcontext context_ = nullptr;
  std::vector<Piece> pieces_;  // the last one is the largest, and the one that calls have
  BufferOrder turns_;
};

}  // namespace polypath::nccl
