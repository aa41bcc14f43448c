#include "collectives/call_order.hpp"

#include "driver/check.hpp"

namespace polypath {
namespace {

/// A capture that the driver does not number.
constexpr std::uint64_t kUnknownCapture = ~std::uint64_t{0};

}  // namespace

CallOrder::CallOrder(const CudaDriver& driver, CUcontext context)
    : driver_(driver),
      last_(driver, context, CU_EVENT_DISABLE_TIMING),
      last_captured_(driver, context, CU_EVENT_DISABLE_TIMING) {}

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

void CallOrder::before(CUstream stream, std::uint64_t capture) {
  if (capture == 0) {
    stream_id_ = id_of(stream);
    // A stream keeps its own calls in order, but a graph may have been launched between them.
    const bool is_same =
        !has_graphs_ && stream == last_stream_ && stream_id_ != 0 && stream_id_ == last_stream_id_;
    if (any_ && !is_same) POLYPATH_CHECK(driver_, stream_wait_event(stream, last_.get(), 0));
  } else if (capture == capture_ && capture != kUnknownCapture) {
    POLYPATH_CHECK(driver_, stream_wait_event(stream, last_captured_.get(), 0));
  } else if (orders_graphs(capture)) {
    POLYPATH_CHECK(driver_, stream_wait_event(stream, last_.get(), CU_EVENT_WAIT_EXTERNAL));
  }
}

void CallOrder::behind(CUstream stream, std::uint64_t capture) {
  any_ = true;
  if (capture == 0) {
    POLYPATH_CHECK(driver_, event_record(last_.get(), stream));
    last_stream_ = stream;
    last_stream_id_ = stream_id_;
    return;
  }
  POLYPATH_CHECK(driver_, event_record(last_captured_.get(), stream));
  if (orders_graphs(capture)) record_in_graph(stream, capture != capture_);
  capture_ = capture;
  has_graphs_ = true;
}

void CallOrder::record_in_graph(CUstream stream, bool is_first) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  POLYPATH_CHECK(driver_,
                 stream_get_capture_info(stream, &status, &number, &graph, &nodes, &edges, &count));
  const std::vector<CUgraphNode> before = std::move(captured_);
  captured_.assign(nodes, nodes + count);
  if (is_first) {
    POLYPATH_CHECK(driver_, graph_add_event_record_node(&record_, graph, captured_.data(), count,
                                                        last_.get()));
    return;
  }
  const auto to_record = [this](std::size_t size) {
    return std::vector<CUgraphNode>(size, record_);
  };
  POLYPATH_CHECK(driver_,
                 graph_remove_dependencies(graph, before.data(), to_record(before.size()).data(),
                                           nullptr, before.size()));
  POLYPATH_CHECK(driver_, graph_add_dependencies(graph, captured_.data(), to_record(count).data(),
                                                 nullptr, count));
}

bool CallOrder::in_flight() const {
  return any_ && driver_.event_query(last_.get()) == CUDA_ERROR_NOT_READY;
}

}  // namespace polypath
