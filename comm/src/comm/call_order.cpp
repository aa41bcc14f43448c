#include "comm/call_order.hpp"

#include <algorithm>
#include <utility>

#include "driver/check.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {
namespace {

/// A capture that the driver does not number.
constexpr std::uint64_t kUnknownCapture = ~std::uint64_t{0};
/// More at once, that take turns in calling, order the calls of each less than they should.
constexpr std::size_t kCapturesAtOnce = 8;

}  // namespace

CallOrder::CallOrder(const CudaDriver& driver, CUcontext context)
    : driver_(driver), context_(context), last_(driver, context, CU_EVENT_DISABLE_TIMING) {}

std::uint64_t CallOrder::id_of(CUstream stream) const {
  if (driver_.stream_get_id == nullptr) return 0;
  unsigned long long id = 0;
  POLYPATH_CHECK(driver_, stream_get_id(stream, &id));
  return id;
}

std::uint64_t CallOrder::capture_of(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  if (driver_.stream_get_capture_info != nullptr) {
    POLYPATH_CHECK(driver_, stream_get_capture_info(stream, &status, &number, nullptr, nullptr,
                                                    nullptr, nullptr));
  } else if (driver_.stream_is_capturing != nullptr) {
    POLYPATH_CHECK(driver_, stream_is_capturing(stream, &status));
    number = kUnknownCapture;
  }
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? number : 0;
}

bool CallOrder::orders_graphs(std::uint64_t capture) const noexcept {
  return capture != kUnknownCapture && driver_.graph_add_event_record_node != nullptr &&
         driver_.graph_add_dependencies != nullptr && driver_.graph_remove_dependencies != nullptr;
}

CallOrder::Capture* CallOrder::find(std::uint64_t number) {
  if (number == kUnknownCapture) return nullptr;
  const auto it = std::ranges::find(captures_, number, &Capture::number);
  return it == captures_.end() ? nullptr : &*it;
}

CallOrder::Capture& CallOrder::add_capture() {
  if (captures_.size() < kCapturesAtOnce) {
    captures_.push_back({0, Event(driver_, context_, CU_EVENT_DISABLE_TIMING)});
    return captures_.back();
  }
  Capture& reused = captures_[oldest_];
  oldest_ = (oldest_ + 1) % captures_.size();
  reused.number = 0;
  return reused;
}

void CallOrder::before(CUstream stream, std::uint64_t capture) {
  if (capture == 0) {
    stream_id_ = id_of(stream);
    // A stream keeps its own calls in order, but a graph may have been launched between them, and
    // CU_STREAM_PER_THREAD is another stream in each thread.
    const bool is_same = !has_graphs_ && stream == last_stream_ && stream != CU_STREAM_PER_THREAD &&
                         stream_id_ != 0 && stream_id_ == last_stream_id_;
    if (any_ && !is_same) POLYPATH_CHECK(driver_, stream_wait_event(stream, last_.get(), 0));
  } else if (const Capture* const known = find(capture)) {
    POLYPATH_CHECK(driver_, stream_wait_event(stream, known->last.get(), 0));
  } else if (orders_graphs(capture)) {
    POLYPATH_CHECK(driver_, stream_wait_event(stream, last_.get(), CU_EVENT_WAIT_EXTERNAL));
  }
}

void CallOrder::behind(CUstream stream, std::uint64_t capture) {
  any_ = true;
  if (capture == 0) {
    if (const CUresult result = driver_.event_record(last_.get(), stream); result != CUDA_SUCCESS) {
      // The call is on its stream: in_flight() knows of it, where another try succeeds.
      static_cast<void>(driver_.event_record(last_.get(), stream));
      throw_driver_error(driver_, result, "event_record(last, stream)", __FILE__, __LINE__);
    }
    last_stream_ = stream;
    last_stream_id_ = stream_id_;
    return;
  }
  has_graphs_ = true;
  if (capture == kUnknownCapture) return;
  Capture* const known = find(capture);
  Capture& record = known != nullptr ? *known : add_capture();
  POLYPATH_CHECK(driver_, event_record(record.last.get(), stream));
  if (orders_graphs(capture)) record_in_graph(record, stream);
  record.number = capture;
}

void CallOrder::record_in_graph(Capture& capture, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  POLYPATH_CHECK(driver_,
                 stream_get_capture_info(stream, &status, &number, &graph, &nodes, &edges, &count));
  std::vector<CUgraphNode> ends(nodes, nodes + count);
  if (capture.number == 0) {
    POLYPATH_CHECK(driver_, graph_add_event_record_node(&capture.record, graph, ends.data(), count,
                                                        last_.get()));
  } else {
    // First what it waits for now: if a call of the driver fails, it waits for too much.
    const std::vector<CUgraphNode> record(std::max(count, capture.ends.size()), capture.record);
    POLYPATH_CHECK(driver_,
                   graph_add_dependencies(graph, ends.data(), record.data(), nullptr, count));
    POLYPATH_CHECK(driver_, graph_remove_dependencies(graph, capture.ends.data(), record.data(),
                                                      nullptr, capture.ends.size()));
  }
  capture.ends = std::move(ends);
}

bool CallOrder::in_flight() const {
  if (!any_) return false;
  const RelaxedCapture relaxed(driver_);  // any thread may capture meanwhile
  return driver_.event_query(last_.get()) == CUDA_ERROR_NOT_READY;
}

}  // namespace polypath
