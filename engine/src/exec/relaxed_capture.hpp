// While it lives, this thread may make calls that a stream capture elsewhere forbids by its mode,
// such as asking an event or allocating: the engine's own streams and events are never part of a
// capture.
#pragma once

#include "driver/check.hpp"

namespace polypath {

class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaDriver& driver) : driver_(driver) {
    if (driver_.thread_exchange_capture_mode == nullptr) return;
    const CUresult result = driver_.thread_exchange_capture_mode(&mode_);
    relaxed_ = result == CUDA_SUCCESS;
    if (!relaxed_) warn_driver_error(driver_, result, "thread_exchange_capture_mode");
  }
  ~RelaxedCapture() {
    if (relaxed_) POLYPATH_WARN(driver_, thread_exchange_capture_mode(&mode_));
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const CudaDriver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool relaxed_ = false;
};

}  // namespace polypath
