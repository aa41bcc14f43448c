// While it lives, this thread may make calls that a stream capture elsewhere forbids by its mode: what the shim
// does beside a program's call must not spoil the program's capture.
#pragma once

#include "preload/driver_calls.hpp"

namespace polypath::preload {

class RelaxedCapture {
 public:
  RelaxedCapture() noexcept : is_relaxed_(driver::exchange_capture_mode(&mode_) == CUDA_SUCCESS) {}
  ~RelaxedCapture() {
    if (is_relaxed_) driver::exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool is_relaxed_;
};

}  // namespace polypath::preload
