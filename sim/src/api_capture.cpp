// Stream capture. Graphs with captured fills, and with captured copies of rows or of pageable
// memory, can be counted and destroyed, not instantiated.
#include "call.hpp"

using namespace polypath::sim;

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  return call([&](Driver& driver) { driver.captures().begin(driver.streams().get(handle), mode); });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return call([&](Driver& driver) {
    Stream& stream = driver.streams().get(handle);
    out(graph) = nullptr;
    *graph = driver.captures().end(stream);
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return call([&](Driver& driver) {
    const Stream& stream = driver.streams().get(handle);
    out(status) = !stream.capture.is_active()        ? CU_STREAM_CAPTURE_STATUS_NONE
                  : stream.capture.capture->is_valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                     : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    if (stream.is_legacy)
      require(!driver.streams().has_implicit_capture(driver.contexts().get(stream.context)),
              CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  });
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status,
                                   cuuint64_t* number, CUgraph* graph, const CUgraphNode** nodes,
                                   const CUgraphEdgeData** edges, std::size_t* count) {
  if (const CUresult result = cuStreamIsCapturing(handle, status); result != CUDA_SUCCESS)
    return result;
  return call([&](Driver& driver) {
    CaptureMember& member = driver.streams().get(handle).capture;
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
