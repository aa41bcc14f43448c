#include "nccl/stream_order.hpp"

#include <utility>

namespace polypath::nccl {

StreamOrder& StreamOrder::operator=(StreamOrder&& other) noexcept {
  std::swap(cuda_, other.cuda_);
  std::swap(context_, other.context_);
  std::swap(event_, other.event_);
  std::swap(last_, other.last_);
  std::swap(last_stream_, other.last_stream_);
  return *this;
}

StreamOrder::~StreamOrder() {
  if (event_ == nullptr) return;
  const RelaxedCapture relaxed(*cuda_);
  cuda_->event_destroy(event_);
}

bool StreamOrder::is_captured(CUstream stream) const noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return cuda_->stream_is_capturing(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool StreamOrder::record(CUstream stream) noexcept {
  if (event_ == nullptr) {
    const RelaxedCapture relaxed(*cuda_);
    if (cuda_->event_create(&event_, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) event_ = nullptr;
  }
  return event_ != nullptr && cuda_->event_record(event_, stream) == CUDA_SUCCESS;
}

void StreamOrder::before(Carrier carrier, CUstream stream) noexcept {
  if (last_ == Carrier::nobody || last_ == carrier || last_stream_ == stream) return;
  const InContext current(*cuda_, context_);
  if (!is_captured(stream)) cuda_->stream_wait_event(stream, event_, 0);
}

void StreamOrder::after(Carrier carrier, CUstream stream) noexcept {
  if (cuda_ == nullptr) return;
  const InContext current(*cuda_, context_);
  if (is_captured(stream)) return;
  last_ = record(stream) ? carrier : Carrier::nobody;
  last_stream_ = stream;
}

void StreamOrder::join(CUstream waiting, CUstream stream) noexcept {
  const InContext current(*cuda_, context_);
  CUevent event = nullptr;
  const RelaxedCapture relaxed(*cuda_);
  // One of its own: `event_` stands for the last call.
  if (cuda_->event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return;
  if (cuda_->event_record(event, stream) == CUDA_SUCCESS)
    cuda_->stream_wait_event(waiting, event, 0);
  cuda_->event_destroy(event);
}

bool StreamOrder::is_idle() const noexcept {
  return last_ != Carrier::polypath || cuda_->event_query(event_) != CUDA_ERROR_NOT_READY;
}

}  // namespace polypath::nccl
