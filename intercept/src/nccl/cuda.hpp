// The CUDA driver's functions that this library calls next to a program's calls, and scopes for
// them.
#pragma once

#include <cuda.h>

#include <optional>

namespace polypath::nccl {

struct Cuda {
  decltype(&::cuCtxGetCurrent) ctx_get_current;
  decltype(&::cuCtxSetCurrent) ctx_set_current;
  decltype(&::cuDeviceGet) device_get;
  decltype(&::cuDevicePrimaryCtxRetain) primary_ctx_retain;
  decltype(&::cuEventCreate) event_create;
  decltype(&::cuEventDestroy) event_destroy;
  decltype(&::cuEventQuery) event_query;
  decltype(&::cuEventRecord) event_record;
  decltype(&::cuEventSynchronize) event_synchronize;
  decltype(&::cuLaunchHostFunc) launch_host_func;
  decltype(&::cuMemAlloc) mem_alloc;
  decltype(&::cuMemFree) mem_free;
  decltype(&::cuMemFreeHost) mem_free_host;
  decltype(&::cuMemHostAlloc) mem_host_alloc;
  decltype(&::cuMemcpyAsync) memcpy_async;
  decltype(&::cuCtxGetDevice) ctx_get_device;
  decltype(&::cuPointerGetAttribute) pointer_get_attribute;
  decltype(&::cuStreamCreate) stream_create;
  decltype(&::cuStreamDestroy) stream_destroy;
  decltype(&::cuStreamIsCapturing) stream_is_capturing;
  // Null in drivers that lack them.
  decltype(&::cuCtxGetId) ctx_get_id;
  decltype(&::cuGraphAddDependencies_v2) graph_add_dependencies;
  decltype(&::cuGraphAddEventRecordNode) graph_add_event_record_node;
  decltype(&::cuGraphRemoveDependencies_v2) graph_remove_dependencies;
  decltype(&::cuStreamGetId) stream_get_id;
  decltype(&::cuStreamGetCaptureInfo_v3) stream_get_capture_info;
  decltype(&::cuStreamQuery) stream_query;
  decltype(&::cuStreamWaitEvent) stream_wait_event;
  decltype(&::cuThreadExchangeStreamCaptureMode) exchange_capture_mode;
};

/// Of the driver that POLYPATH_DRIVER_LIBRARY names, or libcuda.so.1; null without one, or with one
/// that lacks a function. Any thread.
const Cuda* cuda() noexcept;

/// The number of the capture that the stream is in; 0: none. Nothing: the driver does not say. The
/// stream's context must be current.
std::optional<unsigned long long> capture_of(const Cuda& cuda, CUstream stream) noexcept;

/// Makes a context current while this lives.
class InContext {
 public:
  InContext(const Cuda& cuda, CUcontext context) noexcept : cuda_(cuda) {
    if (cuda.ctx_get_current(&before_) != CUDA_SUCCESS) return;
    is_changed_ = before_ != context && cuda.ctx_set_current(context) == CUDA_SUCCESS;
  }
  ~InContext() {
    if (is_changed_) cuda_.ctx_set_current(before_);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  const Cuda& cuda_;
  CUcontext before_ = nullptr;
  bool is_changed_ = false;
};

/// While it lives, this thread may make calls that a stream capture elsewhere forbids by its mode.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Cuda& cuda) noexcept
      : cuda_(cuda), is_relaxed_(cuda.exchange_capture_mode(&mode_) == CUDA_SUCCESS) {}
  ~RelaxedCapture() {
    if (is_relaxed_) cuda_.exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Cuda& cuda_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool is_relaxed_;
};

}  // namespace polypath::nccl
