#include "staging_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "driver/check.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {
namespace {

/// What a function on a stream copies.
struct HostCopy {
  void* to;
  const void* from;
  std::size_t bytes;
  bool is_captured;  ///< it may run again
};

void CUDA_CB run_copy(void* copy) {
  auto* const host_copy = static_cast<HostCopy*>(copy);
  std::memcpy(host_copy->to, host_copy->from, host_copy->bytes);
  if (!host_copy->is_captured) delete host_copy;
}

}  // namespace

StagingBuffer::StagingBuffer(const CudaDriver& driver, std::shared_ptr<const PrimaryContext> place)
    : driver_(driver), place_(std::move(place)), order_(driver, place_->get()) {}

StagingBuffer::~StagingBuffer() {
  if (!place_->is_there()) return;
  const CurrentContext current(driver_, place_->get(), std::nothrow);
  for (const Piece& piece : pieces_) free_piece(piece);
}

CUdeviceptr StagingBuffer::acquire(std::size_t bytes, CUstream stream, bool may_wait) {
  const CurrentContext current(driver_, place_->get());
  const RelaxedCapture relaxed(driver_);
  capture_ = order_.capture_of(stream);
  if (pieces_.empty() || pieces_.back().bytes < bytes) grow(bytes, may_wait);
  order_.before(stream, capture_);
  Piece& piece = pieces_.back();
  piece.is_captured = piece.is_captured || capture_ != 0;
  return piece.memory;
}

void StagingBuffer::grow(std::size_t bytes, bool may_wait) {
  const std::size_t requested = std::max(bytes, pieces_.empty() ? 0 : 2 * pieces_.back().bytes);
  if (may_wait && is_idle()) free_pieces();
  if (add(requested) == CUDA_SUCCESS) return;
  if (may_wait && order_.latest() != nullptr) {
    static_cast<void>(driver_.event_synchronize(order_.latest()));
    if (is_idle()) free_pieces();
  }
  if (const CUresult result = add(bytes); result != CUDA_SUCCESS)
    throw_driver_error(driver_, result, "mem_alloc(&memory, bytes)", __FILE__, __LINE__);
}

CUresult StagingBuffer::add(std::size_t bytes) {
  Piece piece;
  piece.bytes = bytes;
  const CUresult result = driver_.mem_alloc(&piece.memory, bytes);
  if (result == CUDA_SUCCESS) pieces_.push_back(piece);
  return result;
}

void StagingBuffer::free_pieces() noexcept {
  std::erase_if(pieces_, [&](const Piece& piece) {
    return !piece.is_captured && free_piece(piece) == CUDA_SUCCESS;
  });
}

CUresult StagingBuffer::free_piece(const Piece& piece) const noexcept {
  const CUresult result = driver_.mem_free(piece.memory);
  if (result == CUDA_SUCCESS && piece.pinned != nullptr) driver_.mem_free_host(piece.pinned);
  return result;
}

bool StagingBuffer::is_pageable(CUdeviceptr memory) const {
  CUmemorytype type{};
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* value = &type;
  // CUDA leaves 0 for memory that it does not know.
  return driver_.pointer_get_attributes(1, &attribute, &value, memory) != CUDA_SUCCESS ||
         type == CUmemorytype{};
}

std::byte* StagingBuffer::pinned(std::size_t offset) {
  Piece& piece = pieces_.back();
  if (piece.pinned == nullptr) {
    void* memory = nullptr;
    POLYPATH_CHECK(driver_, mem_host_alloc(&memory, piece.bytes, 0));
    piece.pinned = static_cast<std::byte*>(memory);
  }
  return piece.pinned + offset;
}

void StagingBuffer::copy_on_host(void* to, const void* from, std::size_t bytes, CUstream stream) {
  if (driver_.launch_host_func == nullptr) throw NotSupported("the driver has no cuLaunchHostFunc");
  auto copy = std::make_unique<HostCopy>(HostCopy{to, from, bytes, capture_ != 0});
  POLYPATH_CHECK(driver_, launch_host_func(stream, &run_copy, copy.get()));
  static_cast<void>(copy.release());
}

void StagingBuffer::copy_in(CUdeviceptr from, std::size_t offset, std::size_t bytes,
                            CUstream stream) {
  const CurrentContext current(driver_, place_->get());
  const RelaxedCapture relaxed(driver_);
  if (is_pageable(from)) {
    std::byte* const between = pinned(offset);
    copy_on_host(between, reinterpret_cast<const void*>(from), bytes, stream);
    from = reinterpret_cast<CUdeviceptr>(between);
  }
  POLYPATH_CHECK(driver_, memcpy_async(pieces_.back().memory + offset, from, bytes, stream));
}

void StagingBuffer::copy_out(CUdeviceptr to, std::size_t offset, std::size_t bytes,
                             CUstream stream) {
  const CurrentContext current(driver_, place_->get());
  const RelaxedCapture relaxed(driver_);
  std::byte* const between = is_pageable(to) ? pinned(offset) : nullptr;
  const CUdeviceptr first = between != nullptr ? reinterpret_cast<CUdeviceptr>(between) : to;
  POLYPATH_CHECK(driver_, memcpy_async(first, pieces_.back().memory + offset, bytes, stream));
  if (between != nullptr) copy_on_host(reinterpret_cast<void*>(to), between, bytes, stream);
}

void StagingBuffer::release(CUstream stream) {
  const CurrentContext current(driver_, place_->get());
  const RelaxedCapture relaxed(driver_);
  is_lost_ = true;
  order_.behind(stream, capture_);
  is_lost_ = false;
}

}  // namespace polypath
