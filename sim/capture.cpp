#include "call.hpp"
#include "failure.hpp"
#include "objects.hpp"

namespace polypath::sim {

void CaptureMember::add_node(GraphWork work) {
  capture->graph.nodes.push_back({nullptr, {last.begin(), last.end()}, std::move(work)});
  last = {static_cast<int>(capture->graph.nodes.size()) - 1};
}

void CaptureMember::join(const CaptureMember& other) {
  require(!is_active() || capture == other.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  if (!is_active()) *this = {other.capture, {}};
  last.insert(other.last.begin(), other.last.end());
}

bool CaptureMember::covers_all() const {
  std::set<int> reached;
  std::vector<int> open(last.begin(), last.end());
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    const std::vector<int>& before = capture->graph.nodes[static_cast<std::size_t>(node)].after;
    open.insert(open.end(), before.begin(), before.end());
  }
  return reached.size() == capture->graph.nodes.size();
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
    stream.capture = {capture, {}};
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
    require(capture.is_valid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    require(ended.covers_all(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    *graph = driver.add_graph(std::move(capture.graph));
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

/// Without the graph and the nodes that the next one would depend on: whoever asks for those is
/// told that they are not simulated.
CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status,
                                   cuuint64_t* number, CUgraph* graph, const CUgraphNode** nodes,
                                   const CUgraphEdgeData** edges, std::size_t* count) {
  if (const CUresult result = cuStreamIsCapturing(handle, status); result != CUDA_SUCCESS)
    return result;
  return call([&](Driver& driver) {
    require(graph == nullptr && nodes == nullptr && edges == nullptr && count == nullptr,
            CUDA_ERROR_NOT_SUPPORTED);
    const Stream& stream = driver.stream(handle);
    if (number != nullptr)
      *number = stream.capture.is_active() ? stream.capture.capture->number : 0;
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call([&](Driver&) { std::swap(out(mode), thread_capture_mode()); });
}
