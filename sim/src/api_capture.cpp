#include "call.hpp"
#include "driver.hpp"
#include "failure.hpp"
#include "objects.hpp"

namespace polypath::sim {

void CaptureMember::join(const CaptureMember& other) {
  require(!is_active() || capture == other.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  if (!is_active()) *this = {other.capture, {}, {}};
  last.insert(other.last.begin(), other.last.end());
}

void Driver::add_captured(CaptureMember& member, GraphWork work) {
  GraphNode new_node;
  new_node.after.assign(member.last.begin(), member.last.end());
  new_node.work = std::move(work);
  new_node.is_captured = true;
  graphs_.add_node(member.capture->graph, std::move(new_node));
  member.last = {static_cast<int>(graphs_.get(member.capture->graph).nodes.size()) - 1};
}

bool Driver::covers_all(const CaptureMember& member) const {
  const std::vector<GraphNode>& nodes = graphs_.get(member.capture->graph).nodes;
  std::set<int> reached;
  std::vector<int> open(member.last.begin(), member.last.end());
  while (!open.empty()) {
    const int index = open.back();
    open.pop_back();
    if (!reached.insert(index).second) continue;
    const std::vector<int>& before = nodes[static_cast<std::size_t>(index)].after;
    open.insert(open.end(), before.begin(), before.end());
  }
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].is_captured && !reached.contains(static_cast<int>(i))) return false;
  return true;
}

CUstreamCaptureMode& thread_capture_mode() noexcept {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool forbids_unsafe_calls(const Capture& capture) noexcept {
  const CUstreamCaptureMode mode = thread_capture_mode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == std::this_thread::get_id())
    return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

}  // namespace polypath::sim

using namespace polypath::sim;

// Stream capture. Graphs with captured fills, and with captured copies of rows or of pageable
// memory, can be counted and destroyed, not instantiated.

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  return call([&](Driver& driver) {
    Stream& stream = driver.stream(handle);
    require(!stream.is_legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    require(!stream.capture.is_active(), CUDA_ERROR_ILLEGAL_STATE);
    auto capture = std::make_shared<Capture>();
    capture->origin = stream.id;
    capture->thread = std::this_thread::get_id();
    capture->mode = mode;
    capture->graph = driver.graphs().create();
    stream.capture = {capture, {}, {}};
    driver.captures.add(std::move(capture));
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return call([&](Driver& driver) {
    Stream& stream = driver.stream(handle);
    out(graph) = nullptr;
    require(stream.capture.is_active(), CUDA_ERROR_ILLEGAL_STATE);
    Capture& capture = *stream.capture.capture;
    require(capture.origin == stream.id, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    require(capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
                capture.thread == std::this_thread::get_id(),
            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    const CaptureMember ended = std::exchange(stream.capture, {});
    capture.ended = true;
    driver.captures.remove(ended.capture);
    const bool is_joined = driver.covers_all(ended);
    if (!capture.is_valid || !is_joined) driver.graphs().destroy(capture.graph);
    require(capture.is_valid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    require(is_joined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    *graph = capture.graph;
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return call([&](Driver& driver) {
    const Stream& stream = driver.stream(handle);
    out(status) = !stream.capture.is_active()        ? CU_STREAM_CAPTURE_STATUS_NONE
                  : stream.capture.capture->is_valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                     : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    if (stream.is_legacy)
      require(!driver.has_capture(driver.contexts.get(stream.context)),
              CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  });
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status,
                                   cuuint64_t* number, CUgraph* graph, const CUgraphNode** nodes,
                                   const CUgraphEdgeData** edges, std::size_t* count) {
  if (const CUresult result = cuStreamIsCapturing(handle, status); result != CUDA_SUCCESS)
    return result;
  return call([&](Driver& driver) {
    CaptureMember& member = driver.stream(handle).capture;
    const bool is_active = member.is_active();
    if (number != nullptr) *number = is_active ? member.capture->number : 0;
    if (graph != nullptr) *graph = is_active ? member.capture->graph : nullptr;
    if (edges != nullptr) *edges = nullptr;  // all of the common kind
    if (nodes == nullptr && count == nullptr) return;
    member.reported.clear();
    if (is_active)
      for (const int node : member.last)
        member.reported.push_back(driver.graphs()
                                      .get(member.capture->graph)
                                      .nodes[static_cast<std::size_t>(node)]
                                      .handle);
    if (nodes != nullptr) *nodes = member.reported.data();
    out(count) = member.reported.size();
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call([&](Driver&) { std::swap(out(mode), thread_capture_mode()); });
}
