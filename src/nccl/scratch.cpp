#include "nccl/scratch.hpp"

#include <algorithm>
#include <utility>

namespace polypath::nccl {

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  std::swap(cuda_, other.cuda_);
  std::swap(context_, other.context_);
  std::swap(pieces_, other.pieces_);
  turns_ = std::move(other.turns_);
  return *this;
}

Scratch::~Scratch() {
  if (cuda_ == nullptr) return;
  const InContext current(*cuda_, context_);
  const RelaxedCapture relaxed(*cuda_);
  for (const Piece& piece : pieces_) cuda_->mem_free(piece.memory);
  turns_ = Turns();
}

CUdeviceptr Scratch::take(std::size_t bytes, CUstream stream, bool may_wait) noexcept {
  const InContext current(*cuda_, context_);
  const RelaxedCapture relaxed(*cuda_);
  const auto capture = capture_of(*cuda_, stream);
  if ((pieces_.empty() || pieces_.back().bytes < bytes) && !grow(bytes, may_wait)) return 0;
  if (!turns_.begin(stream, capture)) return 0;
  Piece& piece = pieces_.back();
  if (capture != 0) piece.is_captured = true;
  return piece.memory;
}

bool Scratch::grow(std::size_t bytes, bool may_wait) noexcept {
  const std::size_t wanted = std::max(bytes, pieces_.empty() ? 0 : 2 * pieces_.back().bytes);
  if (may_wait && turns_.is_done()) free_pieces();
  if (add(wanted)) return true;
  if (may_wait) {
    turns_.wait();
    if (turns_.is_done()) free_pieces();
  }
  return add(bytes);
}

bool Scratch::add(std::size_t bytes) noexcept {
  Piece made;
  made.bytes = bytes;
  if (cuda_->mem_alloc(&made.memory, bytes) != CUDA_SUCCESS) return false;
  pieces_.push_back(made);
  return true;
}

void Scratch::free_pieces() noexcept {
  std::erase_if(pieces_, [&](const Piece& piece) {
    return !piece.is_captured && cuda_->mem_free(piece.memory) == CUDA_SUCCESS;
  });
}

void Scratch::done(CUstream stream) noexcept {
  const InContext current(*cuda_, context_);
  const RelaxedCapture relaxed(*cuda_);
  turns_.end(stream, capture_of(*cuda_, stream));
}

}  // namespace polypath::nccl
