// The CUDA driver, opened at run time: the programs build, and with host memory run, without one.
#pragma once

#include <cuda.h>

#include <string>

namespace mpi_bench {

/// Entry points of libcuda.so.1.
struct Cuda {
  decltype(&::cuInit) init;
  decltype(&::cuGetErrorName) get_error_name;
  decltype(&::cuDeviceGetCount) device_get_count;
  decltype(&::cuDeviceGet) device_get;
  decltype(&::cuDeviceGetName) device_get_name;
  decltype(&::cuDevicePrimaryCtxRetain) primary_ctx_retain;
  decltype(&::cuCtxSetCurrent) ctx_set_current;
  decltype(&::cuCtxGetCurrent) ctx_get_current;
  decltype(&::cuCtxEnablePeerAccess) ctx_enable_peer_access;
  decltype(&::cuMemAlloc) mem_alloc;
  decltype(&::cuMemFree) mem_free;
  decltype(&::cuMemHostAlloc) mem_host_alloc;
  decltype(&::cuMemFreeHost) mem_free_host;
  decltype(&::cuMemcpy) memcpy_sync;
  decltype(&::cuMemcpyAsync) memcpy_async;
  decltype(&::cuStreamCreate) stream_create;
  decltype(&::cuStreamDestroy) stream_destroy;
  decltype(&::cuStreamSynchronize) stream_synchronize;
  decltype(&::cuStreamWaitEvent) stream_wait_event;
  decltype(&::cuEventCreate) event_create;
  decltype(&::cuEventDestroy) event_destroy;
  decltype(&::cuEventRecord) event_record;
  // Null where the driver runs no kernels:
  decltype(&::cuModuleLoadData) module_load_data;
  decltype(&::cuModuleGetFunction) module_get_function;
  decltype(&::cuLaunchKernel) launch_kernel;

  /// Opens and initialises the driver at the first call. Throws std::runtime_error where there is
  /// none.
  static const Cuda& get();

  [[nodiscard]] bool runs_kernels() const noexcept {
    return module_load_data != nullptr && module_get_function != nullptr &&
           launch_kernel != nullptr;
  }
  /// Throws std::runtime_error with the call and the driver's name of the error, unless it is
  /// success.
  void check(CUresult result, const char* call) const;
};

/// Makes the primary context of this GPU current in the calling thread, until the process ends, and
/// returns the GPU's name. Throws std::runtime_error, also when there is no such GPU.
std::string use_gpu(int index);

}  // namespace mpi_bench
