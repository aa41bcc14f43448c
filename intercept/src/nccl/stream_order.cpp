#include "nccl/stream_order.hpp"

#include <optional>
#include <utility>

namespace polypath::nccl {
namespace {

/// The number of the capture that the stream is in; 0: none. Nothing: the driver does not say. The
/// stream's context must be current.
std::optional<unsigned long long> capture_of(CUstream stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  CUresult result =
      driver::stream_get_capture_info(stream, &status, &number, nullptr, nullptr, nullptr, nullptr);
  if (result == CUDA_ERROR_NOT_SUPPORTED) result = driver::stream_is_capturing(stream, &status);
  if (result != CUDA_SUCCESS) return {};
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return 0;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || number == 0) return {};
  return number;
}

}  // namespace

StreamOrder& StreamOrder::operator=(StreamOrder&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(last_, other.last_);
  std::swap(last_captured_, other.last_captured_);
  return *this;
}

StreamOrder::~StreamOrder() { end(); }

void StreamOrder::end() noexcept {
  if (context_ == nullptr) return;
  const RelaxedCapture relaxed;
  for (Last* const last : {&last_, &last_captured_})
    if (const CUevent event = std::exchange(last->event, nullptr); event != nullptr)
      driver::event_destroy(event);
  context_ = nullptr;
}

unsigned long long StreamOrder::id_of(CUstream stream) const noexcept {
  unsigned long long id = 0;
  return driver::stream_get_id(stream, &id) == CUDA_SUCCESS ? id : 0;
}

bool StreamOrder::record(CUevent& event, CUstream stream) noexcept {
  if (event == nullptr) {
    const RelaxedCapture relaxed;
    if (driver::event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) event = nullptr;
  }
  return event != nullptr && driver::event_record(event, stream) == CUDA_SUCCESS;
}

bool StreamOrder::before(Provider provider, CUstream stream) noexcept {
  const auto is_open = [&](const Last& last) {
    return last.provider != Provider::none && last.provider != provider;
  };
  if (!is_open(last_) && !is_open(last_captured_)) return true;
  const InContext current(context_);
  const auto capture = capture_of(stream);
  if (!capture) return true;  // one that has failed, and says so when it ends
  const Last& last = *capture == 0 ? last_ : last_captured_;
  if (!is_open(last) || last.capture != *capture) return true;
  // A stream keeps its own calls in order. Its handle may have been another one's before, but not
  // in one capture; there its id must not be asked for, which would end the capture.
  if (last.stream == stream &&
      (*capture != 0 || (last.stream_id != 0 && last.stream_id == id_of(stream))))
    return true;
  return driver::stream_wait_event(stream, last.event, 0) == CUDA_SUCCESS;
}

bool StreamOrder::after(Provider provider, CUstream stream) noexcept {
  if (context_ == nullptr) return true;
  const InContext current(context_);
  const auto capture = capture_of(stream);
  if (!capture) return true;
  Last& last = *capture == 0 ? last_ : last_captured_;
  const bool is_recorded = record(last.event, stream);
  last.provider = is_recorded ? provider : Provider::none;
  last.stream = stream;
  last.stream_id = *capture == 0 ? id_of(stream) : 0;
  last.capture = *capture;
  return is_recorded;
}

bool StreamOrder::join(CUstream waiting, CUstream stream) noexcept {
  const InContext current(context_);
  CUevent event = nullptr;
  const RelaxedCapture relaxed;
  // One of its own: those of `last_` stand for the last call.
  if (driver::event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
  const bool is_joined = driver::event_record(event, stream) == CUDA_SUCCESS &&
                         driver::stream_wait_event(waiting, event, 0) == CUDA_SUCCESS;
  driver::event_destroy(event);
  return is_joined;
}

bool StreamOrder::is_idle() const noexcept {
  return last_.provider != Provider::polypath ||
         driver::event_query(last_.event) != CUDA_ERROR_NOT_READY;
}

}  // namespace polypath::nccl
