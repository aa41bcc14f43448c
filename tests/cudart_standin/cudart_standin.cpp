#include "cudart_standin.h"

#include <cudaTypedefs.h>

#include <bit>

#include "devices.hpp"
#include "driver_entries.hpp"

using namespace polypath::cudart_standin;

namespace {

constexpr int kInvalidDirection = 21;  // cudaErrorInvalidMemcpyDirection

// A function for each kind of copy, as libcudart has.
struct Copies {
  PFN_cuMemcpyHtoDAsync_v3020 to_device;
  PFN_cuMemcpyDtoHAsync_v3020 to_host;
  PFN_cuMemcpyDtoDAsync_v3020 within_devices;
  PFN_cuMemcpyAsync_v4000 any;
  PFN_cuMemcpyPeerAsync_v4000 peer;
  PFN_cuMemcpy_v4000 synchronous;

  explicit Copies(DefaultStream of) {
    // The first version that has the per-thread variants.
    const int least = of == DefaultStream::per_thread ? 7000 : 4000;
    to_device = driver_function<decltype(to_device)>("cuMemcpyHtoDAsync", least, of);
    to_host = driver_function<decltype(to_host)>("cuMemcpyDtoHAsync", least, of);
    within_devices = driver_function<decltype(within_devices)>("cuMemcpyDtoDAsync", least, of);
    any = driver_function<decltype(any)>("cuMemcpyAsync", least, of);
    peer = driver_function<decltype(peer)>("cuMemcpyPeerAsync", least, of);
    synchronous = driver_function<decltype(synchronous)>("cuMemcpy", least, of);
  }
};

const Copies& copies(DefaultStream of) {
  static const Copies legacy(DefaultStream::legacy);
  static const Copies per_thread(DefaultStream::per_thread);
  return of == DefaultStream::legacy ? legacy : per_thread;
}

CUdeviceptr pointer(const void* address) { return std::bit_cast<CUdeviceptr>(address); }

int copy(DefaultStream of, void* dst, const void* src, size_t bytes) {
  if (const int failed = use_current_device()) return failed;
  return call(copies(of).synchronous, pointer(dst), pointer(src), bytes);
}

int copy_async(DefaultStream of, void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
               cudaStream_t stream) {
  if (const int failed = use_current_device()) return failed;
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return call(copies(of).to_device, pointer(dst), src, bytes, stream);
    case cudaMemcpyDeviceToHost: return call(copies(of).to_host, dst, pointer(src), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return call(copies(of).within_devices, pointer(dst), pointer(src), bytes, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return call(copies(of).any, pointer(dst), pointer(src), bytes, stream);
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

int cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind) {
  return copy(DefaultStream::legacy, dst, src, bytes);
}

int cudaMemcpy_ptds(void* dst, const void* src, size_t bytes, cudaMemcpyKind) {
  return copy(DefaultStream::per_thread, dst, src, bytes);
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
  return call(copies(DefaultStream::legacy).peer, pointer(dst), to, pointer(src), from, bytes,
              stream);
}
