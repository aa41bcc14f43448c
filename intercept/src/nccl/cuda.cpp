#include "nccl/cuda.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "gate/lookup.hpp"

namespace polypath::nccl {
namespace {

const Cuda* load() noexcept {
  const char* name = std::getenv("POLYPATH_DRIVER_LIBRARY");
  if (name == nullptr || *name == '\0') name = "libcuda.so.1";
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  static Cuda found{};
  bool is_whole = true;
  // Past the shim: these are no copies of the program's.
  const auto find = [&]<typename Function>(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(preload::real_dlsym()(library, symbol));
    is_whole = is_whole && function != nullptr;
  };
  find(found.ctx_get_current, "cuCtxGetCurrent");
  find(found.ctx_set_current, "cuCtxSetCurrent");
  find(found.device_get, "cuDeviceGet");
  find(found.primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  find(found.event_create, "cuEventCreate");
  find(found.event_destroy, "cuEventDestroy_v2");
  find(found.event_query, "cuEventQuery");
  find(found.event_record, "cuEventRecord");
  find(found.event_synchronize, "cuEventSynchronize");
  find(found.launch_host_func, "cuLaunchHostFunc");
  find(found.mem_alloc, "cuMemAlloc_v2");
  find(found.mem_free, "cuMemFree_v2");
  find(found.mem_free_host, "cuMemFreeHost");
  find(found.mem_host_alloc, "cuMemHostAlloc");
  find(found.memcpy_async, "cuMemcpyAsync");
  find(found.ctx_get_device, "cuCtxGetDevice");
  find(found.pointer_get_attribute, "cuPointerGetAttribute");
  find(found.stream_create, "cuStreamCreate");
  find(found.stream_destroy, "cuStreamDestroy_v2");
  find(found.stream_is_capturing, "cuStreamIsCapturing");
  find(found.stream_query, "cuStreamQuery");
  find(found.stream_wait_event, "cuStreamWaitEvent");
  find(found.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  const bool has_needed = is_whole;
  find(found.ctx_get_id, "cuCtxGetId");
  find(found.graph_add_dependencies, "cuGraphAddDependencies_v2");
  find(found.graph_add_event_record_node, "cuGraphAddEventRecordNode");
  find(found.graph_remove_dependencies, "cuGraphRemoveDependencies_v2");
  find(found.stream_get_id, "cuStreamGetId");
  find(found.stream_get_capture_info, "cuStreamGetCaptureInfo_v3");
  return has_needed ? &found : nullptr;
}

}  // namespace

const Cuda* cuda() noexcept {
  static const Cuda* const found = load();
  return found;
}

std::optional<unsigned long long> capture_of(const Cuda& cuda, CUstream stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  if (cuda.stream_get_capture_info != nullptr) {
    if (cuda.stream_get_capture_info(stream, &status, &number, nullptr, nullptr, nullptr,
                                     nullptr) != CUDA_SUCCESS)
      return {};
  } else if (cuda.stream_is_capturing(stream, &status) != CUDA_SUCCESS) {
    return {};
  }
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return 0;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || number == 0) return {};
  return number;
}

}  // namespace polypath::nccl
