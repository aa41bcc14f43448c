#include "nccl/buffer_order.hpp"

#include <algorithm>
#include <utility>

namespace polypath::nccl {

BufferOrder& BufferOrder::operator=(BufferOrder&& other) noexcept {
  std::swap(cuda_, other.cuda_);
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
    if (event != nullptr) cuda_->event_destroy(event);
}

bool BufferOrder::orders_graphs() const noexcept {
  return cuda_->stream_get_capture_info != nullptr &&
         cuda_->graph_add_event_record_node != nullptr &&
         cuda_->graph_add_dependencies != nullptr && cuda_->graph_remove_dependencies != nullptr;
}

bool BufferOrder::begin(CUstream stream, std::optional<unsigned long long> capture) noexcept {
  for (CUevent* const event : {&last_, &captured_})
    if (*event == nullptr && cuda_->event_create(event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      *event = nullptr;
      return false;
    }
  if (!capture) return true;
  const bool is_known = *capture != 0 && *capture == capture_;
  if (*capture != 0 && !is_known && !orders_graphs()) return true;
  const unsigned flags = *capture == 0 || is_known ? CU_EVENT_WAIT_DEFAULT : CU_EVENT_WAIT_EXTERNAL;
  return cuda_->stream_wait_event(stream, is_known ? captured_ : last_, flags) == CUDA_SUCCESS;
}

bool BufferOrder::end(CUstream stream, std::optional<unsigned long long> capture) noexcept {
  if (!capture) return true;  // a capture that has failed
  bool is_recorded = true;
  if (*capture == 0) {
    is_recorded = cuda_->event_record(last_, stream) == CUDA_SUCCESS;
  } else {
    const bool is_first = *capture != capture_;
    is_recorded = cuda_->event_record(captured_, stream) == CUDA_SUCCESS;
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
  if (cuda_->stream_get_capture_info(stream, &status, &number, &graph, &nodes, &edges, &count) !=
      CUDA_SUCCESS)
    return false;
  std::vector<CUgraphNode> ends(nodes, nodes + count);
  if (is_first) {
    if (cuda_->graph_add_event_record_node(&record_, graph, ends.data(), count, last_) !=
        CUDA_SUCCESS)
      return false;
  } else {
    // First what it waits for now: if a call of the driver fails, it waits for too much.
    const std::vector<CUgraphNode> record(std::max(count, ends_.size()), record_);
    if (cuda_->graph_add_dependencies(graph, ends.data(), record.data(), nullptr, count) !=
            CUDA_SUCCESS ||
        cuda_->graph_remove_dependencies(graph, ends_.data(), record.data(), nullptr,
                                         ends_.size()) != CUDA_SUCCESS)
      return false;
  }
  ends_ = std::move(ends);
  return true;
}

bool BufferOrder::is_done() const noexcept {
  return last_ == nullptr || (!is_lost_ && cuda_->event_query(last_) == CUDA_SUCCESS);
}

void BufferOrder::wait() const noexcept {
  if (last_ != nullptr) cuda_->event_synchronize(last_);
}

}  // namespace polypath::nccl
