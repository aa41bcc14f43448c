// Copies of one dimension: on a stream, and those that the calling thread waits for.
#include <type_traits>

#include "cuda/offload.hpp"

namespace polypath::preload {
namespace {

template <typename Destination, typename Source>
CUresult copy_async(Symbol symbol, Direction direction, Destination dst, Source src,
                    std::size_t bytes, CUstream stream) noexcept {
  return carry({symbol, direction, address_of(dst), address_of(src), bytes, stream},
               [=] { return call_driver(symbol, dst, src, bytes, stream); });
}

CUresult copy_peer_async(Symbol symbol, CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                         CUcontext src_context, std::size_t bytes, CUstream stream) noexcept {
  const PeerContexts contexts{dst_context, src_context};
  return carry({symbol, Direction::gpu_to_gpu, dst, src, bytes, stream, &contexts}, [=] {
    return call_driver(symbol, dst, dst_context, src, src_context, bytes, stream);
  });
}

template <typename Destination, typename Source>
CUresult copy_and_wait(Symbol symbol, Direction direction, Destination dst, Source src,
                       std::size_t bytes) noexcept {
  return dispatch_copy_and_wait(
      {symbol, direction, address_of(dst), address_of(src), bytes, nullptr},
      [=] { return call_driver(symbol, dst, src, bytes); });
}

CUresult copy_peer(Symbol symbol, CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                   CUcontext src_context, std::size_t bytes) noexcept {
  const PeerContexts contexts{dst_context, src_context};
  return dispatch_copy_and_wait(
      {symbol, Direction::gpu_to_gpu, dst, src, bytes, nullptr, &contexts},
      [=] { return call_driver(symbol, dst, dst_context, src, src_context, bytes); });
}

}  // namespace
}  // namespace polypath::preload

using namespace polypath::preload;

// Each with the legacy default stream, and with that of the thread.
#define POLYPATH_COPY(name, direction, Destination, Source)                    \
  POLYPATH_INTERCEPTOR(name)(Destination dst, Source src, size_t bytes) {      \
    return copy_and_wait(Symbol::name, Direction::direction, dst, src, bytes); \
  }
#define POLYPATH_COPY_ASYNC(name, direction, Destination, Source)                          \
  POLYPATH_INTERCEPTOR(name)(Destination dst, Source src, size_t bytes, CUstream stream) { \
    return copy_async(Symbol::name, Direction::direction, dst, src, bytes, stream);        \
  }
#define POLYPATH_COPY_PEER(name)                                                                   \
  POLYPATH_INTERCEPTOR(name)                                                                       \
  (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes) { \
    return copy_peer(Symbol::name, dst, dst_context, src, src_context, bytes);                     \
  }
#define POLYPATH_COPY_PEER_ASYNC(name)                                                           \
  POLYPATH_INTERCEPTOR(name)                                                                     \
  (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes, \
   CUstream stream) {                                                                            \
    return copy_peer_async(Symbol::name, dst, dst_context, src, src_context, bytes, stream);     \
  }

POLYPATH_COPY_ASYNC(cuMemcpyAsync, any, CUdeviceptr, CUdeviceptr)
POLYPATH_COPY_ASYNC(cuMemcpyAsync_ptsz, any, CUdeviceptr, CUdeviceptr)
POLYPATH_COPY_ASYNC(cuMemcpyHtoDAsync_v2, host_to_gpu, CUdeviceptr, const void*)
POLYPATH_COPY_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, host_to_gpu, CUdeviceptr, const void*)
POLYPATH_COPY_ASYNC(cuMemcpyDtoHAsync_v2, gpu_to_host, void*, CUdeviceptr)
POLYPATH_COPY_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, gpu_to_host, void*, CUdeviceptr)
POLYPATH_COPY_ASYNC(cuMemcpyDtoDAsync_v2, gpu_to_gpu, CUdeviceptr, CUdeviceptr)
POLYPATH_COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, gpu_to_gpu, CUdeviceptr, CUdeviceptr)
POLYPATH_COPY_PEER_ASYNC(cuMemcpyPeerAsync)
POLYPATH_COPY_PEER_ASYNC(cuMemcpyPeerAsync_ptsz)

POLYPATH_COPY(cuMemcpy, any, CUdeviceptr, CUdeviceptr)
POLYPATH_COPY(cuMemcpy_ptds, any, CUdeviceptr, CUdeviceptr)
POLYPATH_COPY(cuMemcpyHtoD_v2, host_to_gpu, CUdeviceptr, const void*)
POLYPATH_COPY(cuMemcpyHtoD_v2_ptds, host_to_gpu, CUdeviceptr, const void*)
POLYPATH_COPY(cuMemcpyDtoH_v2, gpu_to_host, void*, CUdeviceptr)
POLYPATH_COPY(cuMemcpyDtoH_v2_ptds, gpu_to_host, void*, CUdeviceptr)
POLYPATH_COPY(cuMemcpyDtoD_v2, gpu_to_gpu, CUdeviceptr, CUdeviceptr)
POLYPATH_COPY(cuMemcpyDtoD_v2_ptds, gpu_to_gpu, CUdeviceptr, CUdeviceptr)
POLYPATH_COPY_PEER(cuMemcpyPeer)
POLYPATH_COPY_PEER(cuMemcpyPeer_ptds)
