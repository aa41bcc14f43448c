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

POLYPATH_INTERCEPTOR(cuMemcpyAsync)
(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyAsync, Direction::any, dst, src, bytes, stream);
}

POLYPATH_INTERCEPTOR(cuMemcpyAsync_ptsz)
(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyAsync_ptsz, Direction::any, dst, src, bytes, stream);
}

POLYPATH_INTERCEPTOR(cuMemcpyHtoDAsync_v2)
(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyHtoDAsync_v2, Direction::host_to_gpu, dst, src, bytes, stream);
}

POLYPATH_INTERCEPTOR(cuMemcpyHtoDAsync_v2_ptsz)
(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyHtoDAsync_v2_ptsz, Direction::host_to_gpu, dst, src, bytes,
                    stream);
}

POLYPATH_INTERCEPTOR(cuMemcpyDtoHAsync_v2)
(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyDtoHAsync_v2, Direction::gpu_to_host, dst, src, bytes, stream);
}

POLYPATH_INTERCEPTOR(cuMemcpyDtoHAsync_v2_ptsz)
(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyDtoHAsync_v2_ptsz, Direction::gpu_to_host, dst, src, bytes,
                    stream);
}

POLYPATH_INTERCEPTOR(cuMemcpyDtoDAsync_v2)
(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyDtoDAsync_v2, Direction::gpu_to_gpu, dst, src, bytes, stream);
}

POLYPATH_INTERCEPTOR(cuMemcpyDtoDAsync_v2_ptsz)
(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyDtoDAsync_v2_ptsz, Direction::gpu_to_gpu, dst, src, bytes,
                    stream);
}

POLYPATH_INTERCEPTOR(cuMemcpyPeerAsync)
(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
 CUstream stream) {
  return copy_peer_async(Symbol::cuMemcpyPeerAsync, dst, dst_context, src, src_context, bytes,
                         stream);
}

POLYPATH_INTERCEPTOR(cuMemcpyPeerAsync_ptsz)
(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
 CUstream stream) {
  return copy_peer_async(Symbol::cuMemcpyPeerAsync_ptsz, dst, dst_context, src, src_context, bytes,
                         stream);
}

POLYPATH_INTERCEPTOR(cuMemcpy)(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpy, Direction::any, dst, src, bytes);
}

POLYPATH_INTERCEPTOR(cuMemcpy_ptds)(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpy_ptds, Direction::any, dst, src, bytes);
}

POLYPATH_INTERCEPTOR(cuMemcpyHtoD_v2)(CUdeviceptr dst, const void* src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyHtoD_v2, Direction::host_to_gpu, dst, src, bytes);
}

POLYPATH_INTERCEPTOR(cuMemcpyHtoD_v2_ptds)(CUdeviceptr dst, const void* src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyHtoD_v2_ptds, Direction::host_to_gpu, dst, src, bytes);
}

POLYPATH_INTERCEPTOR(cuMemcpyDtoH_v2)(void* dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyDtoH_v2, Direction::gpu_to_host, dst, src, bytes);
}

POLYPATH_INTERCEPTOR(cuMemcpyDtoH_v2_ptds)(void* dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyDtoH_v2_ptds, Direction::gpu_to_host, dst, src, bytes);
}

POLYPATH_INTERCEPTOR(cuMemcpyDtoD_v2)(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyDtoD_v2, Direction::gpu_to_gpu, dst, src, bytes);
}

POLYPATH_INTERCEPTOR(cuMemcpyDtoD_v2_ptds)(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyDtoD_v2_ptds, Direction::gpu_to_gpu, dst, src, bytes);
}

POLYPATH_INTERCEPTOR(cuMemcpyPeer)
(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes) {
  return copy_peer(Symbol::cuMemcpyPeer, dst, dst_context, src, src_context, bytes);
}

POLYPATH_INTERCEPTOR(cuMemcpyPeer_ptds)
(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes) {
  return copy_peer(Symbol::cuMemcpyPeer_ptds, dst, dst_context, src, src_context, bytes);
}
