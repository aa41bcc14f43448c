#include "nccl/staging_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace polypath::nccl {

StagingBuffer& StagingBuffer::operator=(StagingBuffer&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(pieces_, other.pieces_);
  turns_ = std::move(other.turns_);
  return *this;
}

StagingBuffer::~StagingBuffer() {
  if (context_ == nullptr) return;
  const InContext current(context_);
  const RelaxedCapture relaxed;
  for (const Piece& piece : pieces_) free_piece(piece);
  turns_ = BufferOrder();
}

CUdeviceptr StagingBuffer::take(std::size_t bytes, CUstream stream, bool may_wait) noexcept {
  const InContext current(context_);
  const RelaxedCapture relaxed;
  const auto capture = capture_of(stream);
  if ((pieces_.empty() || pieces_.back().bytes < bytes) && !grow(bytes, may_wait)) return 0;
  if (!turns_.begin(stream, capture)) return 0;
  Piece& piece = pieces_.back();
  if (capture != 0) piece.is_captured = true;
  return piece.memory;
}

bool StagingBuffer::grow(std::size_t bytes, bool may_wait) noexcept {
  const std::size_t wanted = std::max(bytes, pieces_.empty() ? 0 : 2 * pieces_.back().bytes);
  if (may_wait && turns_.is_done()) free_pieces();
  if (add(wanted)) return true;
  if (may_wait) {
    turns_.wait();
    if (turns_.is_done()) free_pieces();
  }
  return add(bytes);
}

bool StagingBuffer::add(std::size_t bytes) noexcept {
  Piece made;
  made.bytes = bytes;
  if (driver::mem_alloc(&made.memory, bytes) != CUDA_SUCCESS) return false;
  pieces_.push_back(made);
  return true;
}

void StagingBuffer::free_pieces() noexcept {
  std::erase_if(pieces_, [&](const Piece& piece) {
    return !piece.is_captured && free_piece(piece) == CUDA_SUCCESS;
  });
}

CUresult StagingBuffer::free_piece(const Piece& piece) noexcept {
  const CUresult result = driver::mem_free(piece.memory);
  if (result == CUDA_SUCCESS && piece.pinned != nullptr) driver::mem_free_host(piece.pinned);
  return result;
}

bool StagingBuffer::is_pageable(const void* memory) const noexcept {
  CUmemorytype kind{};
  return driver::pointer_get_attribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                       reinterpret_cast<CUdeviceptr>(memory)) != CUDA_SUCCESS;
}

std::byte* StagingBuffer::pinned() noexcept {
  Piece& piece = pieces_.back();
  if (void* made = nullptr;
      piece.pinned == nullptr && driver::mem_host_alloc(&made, piece.bytes, 0) == CUDA_SUCCESS)
    piece.pinned = static_cast<std::byte*>(made);
  return piece.pinned;
}

void StagingBuffer::run_copy(void* copy) {
  auto* const its = static_cast<HostCopy*>(copy);
  std::memcpy(its->to, its->from, its->bytes);
  if (!its->is_captured) delete its;
}

bool StagingBuffer::copy_on_host(void* to, const void* from, std::size_t bytes,
                                 CUstream stream) noexcept {
  auto* const copy = new (std::nothrow) HostCopy{to, from, bytes, capture_of(stream) != 0};
  if (copy == nullptr) return false;
  if (driver::launch_host_func(stream, &run_copy, copy) == CUDA_SUCCESS) return true;
  delete copy;
  return false;
}

bool StagingBuffer::copy_in(const void* from, std::size_t offset, std::size_t bytes,
                            CUstream stream) noexcept {
  const InContext current(context_);
  const RelaxedCapture relaxed;
  if (is_pageable(from)) {
    std::byte* const between = pinned();
    if (between == nullptr || !copy_on_host(between + offset, from, bytes, stream)) return false;
    from = between + offset;
  }
  return driver::memcpy_async(pieces_.back().memory + offset, reinterpret_cast<CUdeviceptr>(from),
                              bytes, stream) == CUDA_SUCCESS;
}

bool StagingBuffer::copy_out(void* to, std::size_t offset, std::size_t bytes,
                             CUstream stream) noexcept {
  const InContext current(context_);
  const RelaxedCapture relaxed;
  std::byte* const between = is_pageable(to) ? pinned() : nullptr;
  if (between == nullptr && is_pageable(to)) return false;
  void* const first = between != nullptr ? between + offset : to;
  return driver::memcpy_async(reinterpret_cast<CUdeviceptr>(first), pieces_.back().memory + offset,
                              bytes, stream) == CUDA_SUCCESS &&
         (between == nullptr || copy_on_host(to, between + offset, bytes, stream));
}

bool StagingBuffer::done(CUstream stream) noexcept {
  const InContext current(context_);
  const RelaxedCapture relaxed;
  return turns_.end(stream, capture_of(stream));
}

}  // namespace polypath::nccl
