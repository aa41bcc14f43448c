// Stream capture, and the graphs that it makes. They can be counted and destroyed, not launched.
#include "call.hpp"

using namespace polypath::sim;

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode) {
  return call([&](Driver& driver) {
    Stream& stream = driver.stream(handle);
    require(!stream.is_legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    require(!stream.capture.is_active(), CUDA_ERROR_ILLEGAL_STATE);
    stream.capture = {std::make_shared<Capture>(), {}};
    stream.capture.capture->origin = stream.id;
  });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return call([&](Driver& driver) {
    Stream& stream = driver.stream(handle);
    out(graph) = nullptr;
    require(stream.capture.is_active(), CUDA_ERROR_ILLEGAL_STATE);
    Capture& capture = *stream.capture.capture;
    require(capture.origin == stream.id, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    capture.ended = true;
    require(stream.capture.covers_all(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    *graph = driver.graphs.add(std::make_unique<Graph>(std::move(capture.graph)));
    stream.capture = {};
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return call([&](Driver& driver) {
    const Stream& stream = driver.stream(handle);
    out(status) = stream.capture.is_active() ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                             : CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream.is_legacy)
      require(!driver.has_capture(driver.contexts.get(stream.context)),
              CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return call([&](Driver& driver) {
    driver.graphs.get(graph, CUDA_ERROR_INVALID_VALUE);
    driver.graphs.remove(graph);
  });
}
