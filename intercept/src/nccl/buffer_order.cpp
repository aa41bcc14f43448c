#include "nccl/buffer_order.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace polypath::nccl {

BufferOrder& BufferOrder::operator=(BufferOrder&& other) noexcept {
  std::swap(last_, other.last_);
  std::swap(is_lost_, other.is_lost_);
  std::swap(capture_, other.capture_);
  std::swap(captured_, other.captured_);
  std::swap(record_, other.record_);
  std::swap(ends_, other.ends_);
  return *this;
}

BufferOrder::~BufferOrder() {
  for (const CUevent event : {last_, captured_})
    if (event != nullptr) driver::event_destroy(event);
}

bool BufferOrder::orders_graphs() const noexcept {
  for (const char* name : {"cuStreamGetCaptureInfo_v3", "cuGraphAddEventRecordNode",
                           "cuGraphAddDependencies_v2", "cuGraphRemoveDependencies_v2"})
    if (preload::find_in_driver(name) == nullptr) return false;
  return true;
}

bool BufferOrder::begin(CUstream stream, std::optional<unsigned long long> capture) noexcept {
  for (CUevent* const event : {&last_, &captured_})
    if (*event == nullptr && driver::event_create(event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      *event = nullptr;
      return false;
    }
  if (!capture) return true;
  const bool is_known = *capture != 0 && *capture == capture_;
  if (*capture != 0 && !is_known && !orders_graphs()) return true;
  const unsigned flags = *capture == 0 || is_known ? CU_EVENT_WAIT_DEFAULT : CU_EVENT_WAIT_EXTERNAL;
  return driver::stream_wait_event(stream, is_known ? captured_ : last_, flags) == CUDA_SUCCESS;
}

bool BufferOrder::end(CUstream stream, std::optional<unsigned long long> capture) noexcept {
  if (!capture) return true;  // a capture that has failed
  bool is_recorded = true;
  if (*capture == 0) {
    is_recorded = driver::event_record(last_, stream) == CUDA_SUCCESS;
  } else {
    const bool is_first = *capture != capture_;
    is_recorded = driver::event_record(captured_, stream) == CUDA_SUCCESS;
    capture_ = is_recorded ? *capture : 0;
    if (orders_graphs()) is_recorded &= record_in_graph(stream, is_first);
  }
  is_lost_ |= !is_recorded;
  return is_recorded;
}

bool BufferOrder::record_in_graph(CUstream stream, bool is_first) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  if (driver::stream_get_capture_info(stream, &status, &number, &graph, &nodes, &edges, &count) !=
      CUDA_SUCCESS)
    return false;
  std::vector<CUgraphNode> ends(nodes, nodes + count);
  if (is_first) {
    if (driver::graph_add_event_record_node(&record_, graph, ends.data(), count, last_) !=
        CUDA_SUCCESS)
      return false;
  } else {
    // First what it waits for now: if a call of the driver fails, it waits for too much.
    const std::vector<CUgraphNode> record(std::max(count, ends_.size()), record_);
    if (driver::graph_add_dependencies(graph, ends.data(), record.data(), nullptr, count) !=
            CUDA_SUCCESS ||
        driver::graph_remove_dependencies(graph, ends_.data(), record.data(), nullptr,
                                          ends_.size()) != CUDA_SUCCESS)
      return false;
  }
  ends_ = std::move(ends);
  return true;
}

bool BufferOrder::is_done() const noexcept {
  return last_ == nullptr || (!is_lost_ && driver::event_query(last_) == CUDA_SUCCESS);
}

void BufferOrder::wait() const noexcept {
  if (last_ != nullptr) driver::event_synchronize(last_);
}

}  // namespace polypath::nccl
