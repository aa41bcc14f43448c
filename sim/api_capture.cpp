// Stream capture. The graphs that it makes can be counted and destroyed, not instantiated.
#include "call.hpp"

using namespace polypath::sim;

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

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call([&](Driver&) { std::swap(out(mode), thread_capture_mode()); });
}
