#include "nccl/scratch.hpp"

#include <utility>

namespace polypath::nccl {

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  std::swap(cuda_, other.cuda_);
  std::swap(context_, other.context_);
  std::swap(pieces_, other.pieces_);
  return *this;
}

Scratch::~Scratch() {
  if (pieces_.empty()) return;
  const InContext current(*cuda_, context_);
  const RelaxedCapture relaxed(*cuda_);
  for (const Piece& piece : pieces_) {
    if (piece.done != nullptr) cuda_->event_destroy(piece.done);
    cuda_->mem_free(piece.memory);
  }
}

CUdeviceptr Scratch::take(std::size_t bytes, CUstream stream) noexcept {
  const InContext current(*cuda_, context_);
  const RelaxedCapture relaxed(*cuda_);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuda_->stream_is_capturing(stream, &status);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE)
    for (Piece& piece : pieces_)
      if (piece.is_free && piece.bytes >= bytes && cuda_->event_query(piece.done) == CUDA_SUCCESS) {
        piece.is_free = false;
        return piece.memory;
      }
  Piece made;
  made.bytes = bytes;
  if (cuda_->mem_alloc(&made.memory, bytes) != CUDA_SUCCESS) return 0;
  pieces_.push_back(made);
  return made.memory;
}

void Scratch::done(CUdeviceptr memory, CUstream stream) noexcept {
  const InContext current(*cuda_, context_);
  const RelaxedCapture relaxed(*cuda_);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (cuda_->stream_is_capturing(stream, &status) != CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_NONE)
    return;
  for (Piece& piece : pieces_)
    if (piece.memory == memory) {
      if (piece.done == nullptr &&
          cuda_->event_create(&piece.done, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return;
      piece.is_free = cuda_->event_record(piece.done, stream) == CUDA_SUCCESS;
    }
}

}  // namespace polypath::nccl
