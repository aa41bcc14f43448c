#include "cudart_standin.h"

#include <cudaTypedefs.h>

#include <bit>
#include <type_traits>

#include "devices.hpp"
#include "driver_entries.hpp"

using namespace polypath::cudart_standin;

namespace {

constexpr int kInvalidDirection = 21;  // cudaErrorInvalidMemcpyDirection

// A function for each kind of copy, as libcudart has.
struct Copies {
  PFN_cuMemcpyHtoD_v3020 to_device;
  PFN_cuMemcpyDtoH_v3020 to_host;
  PFN_cuMemcpyDtoD_v3020 within_devices;
  PFN_cuMemcpy_v4000 any;
  PFN_cuMemcpyHtoDAsync_v3020 to_device_async;
  PFN_cuMemcpyDtoHAsync_v3020 to_host_async;
  PFN_cuMemcpyDtoDAsync_v3020 within_devices_async;
  PFN_cuMemcpyAsync_v4000 any_async;
  PFN_cuMemcpyPeerAsync_v4000 peer_async;

  explicit Copies(DefaultStream default_stream) {
    const auto find = [default_stream](auto& function, const char* name) {
      // The first versions that have all of them.
      const int version = default_stream == DefaultStream::per_thread ? 7000 : 4000;
      function = driver_function<std::remove_reference_t<decltype(function)>>(name, version,
                                                                              default_stream);
    };
    find(to_device, "cuMemcpyHtoD");
    find(to_host, "cuMemcpyDtoH");
    find(within_devices, "cuMemcpyDtoD");
    find(any, "cuMemcpy");
    find(to_device_async, "cuMemcpyHtoDAsync");
    find(to_host_async, "cuMemcpyDtoHAsync");
    find(within_devices_async, "cuMemcpyDtoDAsync");
    find(any_async, "cuMemcpyAsync");
    find(peer_async, "cuMemcpyPeerAsync");
  }
};

const Copies& copies(DefaultStream default_stream) {
  static const Copies legacy(DefaultStream::legacy);
  static const Copies per_thread(DefaultStream::per_thread);
  return default_stream == DefaultStream::legacy ? legacy : per_thread;
}

CUdeviceptr pointer(const void* address) { return std::bit_cast<CUdeviceptr>(address); }

int copy(DefaultStream default_stream, void* dst, const void* src, size_t bytes,
         cudaMemcpyKind kind) {
  if (const int failed = use_current_device()) return failed;
  const Copies& functions = copies(default_stream);
  switch (kind) {
    case cudaMemcpyHostToDevice: return call(functions.to_device, pointer(dst), src, bytes);
    case cudaMemcpyDeviceToHost: return call(functions.to_host, dst, pointer(src), bytes);
    case cudaMemcpyDeviceToDevice:
      return call(functions.within_devices, pointer(dst), pointer(src), bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return call(functions.any, pointer(dst), pointer(src), bytes);
  }
  return kInvalidDirection;
}

int copy_async(DefaultStream default_stream, void* dst, const void* src, size_t bytes,
               cudaMemcpyKind kind, cudaStream_t stream) {
  if (const int failed = use_current_device()) return failed;
  const Copies& functions = copies(default_stream);
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return call(functions.to_device_async, pointer(dst), src, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return call(functions.to_host_async, dst, pointer(src), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return call(functions.within_devices_async, pointer(dst), pointer(src), bytes, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return call(functions.any_async, pointer(dst), pointer(src), bytes, stream);
  }
  return kInvalidDirection;
}

}  // namespace

int cudaMalloc(void** address, size_t bytes) {
  if (const int failed = use_current_device()) return failed;
  CUdeviceptr allocated = 0;
  const int result =
      call(driver_function<PFN_cuMemAlloc_v3020>("cuMemAlloc", 3020), &allocated, bytes);
  *address = std::bit_cast<void*>(allocated);
  return result;
}

int cudaFree(void* address) {
  if (const int failed = use_current_device()) return failed;
  return call(driver_function<PFN_cuMemFree_v3020>("cuMemFree", 3020), pointer(address));
}

int cudaHostAlloc(void** address, size_t bytes, unsigned int flags) {
  if (const int failed = use_current_device()) return failed;
  return call(driver_function<PFN_cuMemHostAlloc_v2020>("cuMemHostAlloc", 2020), address, bytes,
              flags);
}

int cudaFreeHost(void* address) {
  if (const int failed = use_current_device()) return failed;
  return call(driver_function<PFN_cuMemFreeHost_v2000>("cuMemFreeHost", 2000), address);
}

int cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  if (const int failed = use_current_device()) return failed;
  return call(driver_function<PFN_cuStreamCreate_v2000>("cuStreamCreate", 2000), stream, flags);
}

int cudaStreamDestroy(cudaStream_t stream) {
  return call(driver_function<PFN_cuStreamDestroy_v4000>("cuStreamDestroy", 4000), stream);
}

int cudaStreamSynchronize(cudaStream_t stream) {
  if (const int failed = use_current_device()) return failed;
  return call(driver_function<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize", 2000), stream);
}

int cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
  return copy(DefaultStream::legacy, dst, src, bytes, kind);
}

int cudaMemcpy_ptds(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
  return copy(DefaultStream::per_thread, dst, src, bytes, kind);
}

int cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                    cudaStream_t stream) {
  return copy_async(DefaultStream::legacy, dst, src, bytes, kind, stream);
}

int cudaMemcpyAsync_ptsz(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                         cudaStream_t stream) {
  return copy_async(DefaultStream::per_thread, dst, src, bytes, kind, stream);
}

int cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device, size_t bytes,
                        cudaStream_t stream) {
  CUcontext to = nullptr;
  CUcontext from = nullptr;
  if (const int failed = primary_context(dst_device, to)) return failed;
  if (const int failed = primary_context(src_device, from)) return failed;
  if (const int failed = use_current_device()) return failed;
  return call(copies(DefaultStream::legacy).peer_async, pointer(dst), to, pointer(src), from, bytes,
              stream);
}
