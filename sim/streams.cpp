#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "contexts.hpp"
#include "driver.hpp"
#include "failure.hpp"

namespace polypath::sim {

Stream& Driver::stream(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return current_context().legacy;
  if (handle != CU_STREAM_PER_THREAD) return streams.get(handle);
  Context& context = current_context();
  std::unique_ptr<Stream>& stream = context.per_thread[std::this_thread::get_id()];
  if (!stream) {
    stream = std::make_unique<Stream>();
    stream->context = context.handle;
    stream->device = context.device;
    stream->id = next_stream_id();
  }
  return *stream;
}

void Driver::wait_for_room(CUstream handle, std::size_t count) {
  const bool is_default =
      handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
  if (is_default ? context_stack().empty() : streams.find(handle) == nullptr) return;
  const Stream& on = stream(handle);
  if (on.capture.is_active()) return;
  const int wanted = count < kStreamDepth ? static_cast<int>(count) : kStreamDepth;
  const auto has_room = [queued = on.queued, wanted] {
    return *queued + wanted <= kStreamDepth + 1;  // and the operation that the stream is at
  };
  if (has_room()) return;
  catch_up();
  const auto patient_until = std::chrono::steady_clock::now() + mode.patience;
  devices_->wait_until([&] {
    if (has_room()) return true;
    if (std::chrono::steady_clock::now() < patient_until) return false;
    std::fprintf(stderr, "polypath_sim: deadlock: a full stream has not moved for %lld s\n",
                 static_cast<long long>(mode.patience.count()));
    std::abort();
  });
}

OperationPtr Driver::enqueue(Stream& stream, Operation operation) {
  const Context& context = contexts.get(stream.context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  operation.previous = stream.tail;
  if (stream.is_legacy) {
    require(!has_capture(context), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    const auto add = [&operation](const Stream& other) {
      if (other.is_blocking() && other.tail) operation.after.push_back(other.tail);
    };
    for (const CUstream other : context.streams) add(streams.get(other));
    for (const auto& [thread, other] : context.per_thread) add(*other);
  } else if (stream.is_blocking() && context.legacy.tail) {
    operation.after.push_back(context.legacy.tail);
  }
  operation.queue = stream.queued;
  ++*stream.queued;
  stream.tail = devices_->issue(std::move(operation));
  return stream.tail;
}

void Driver::require_no_capture(const Stream& stream) {
  require(!stream.capture.is_active(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void Driver::require_capture_allows() {
  bool is_forbidden = false;
  for (const std::shared_ptr<Capture>& capture : captures) {
    if (!forbids_unsafe_calls(*capture)) continue;
    capture->is_valid = false;
    is_forbidden = true;
  }
  require(!is_forbidden, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

bool Driver::has_capture(const Context& context) const {
  for (const CUstream handle : context.streams) {
    const Stream& stream = streams.get(handle);
    if (stream.is_blocking() && stream.capture.is_active()) return true;
  }
  return false;
}

}  // namespace polypath::sim
