// Copies on a stream.
#include <type_traits>

#include "preload/hand_over.hpp"

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

}  // namespace
}  // namespace polypath::preload

using namespace polypath::preload;

POLYPATH_REPLACEMENT(cuMemcpyAsync)
(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyAsync, Direction::any, dst, src, bytes, stream);
}

POLYPATH_REPLACEMENT(cuMemcpyAsync_ptsz)
(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyAsync_ptsz, Direction::any, dst, src, bytes, stream);
}

POLYPATH_REPLACEMENT(cuMemcpyHtoDAsync_v2)
(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyHtoDAsync_v2, Direction::host_to_gpu, dst, src, bytes, stream);
}

POLYPATH_REPLACEMENT(cuMemcpyHtoDAsync_v2_ptsz)
(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyHtoDAsync_v2_ptsz, Direction::host_to_gpu, dst, src, bytes,
                    stream);
}

POLYPATH_REPLACEMENT(cuMemcpyDtoHAsync_v2)
(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyDtoHAsync_v2, Direction::gpu_to_host, dst, src, bytes, stream);
}

POLYPATH_REPLACEMENT(cuMemcpyDtoHAsync_v2_ptsz)
(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyDtoHAsync_v2_ptsz, Direction::gpu_to_host, dst, src, bytes,
                    stream);
}

POLYPATH_REPLACEMENT(cuMemcpyDtoDAsync_v2)
(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyDtoDAsync_v2, Direction::gpu_to_gpu, dst, src, bytes, stream);
}

POLYPATH_REPLACEMENT(cuMemcpyDtoDAsync_v2_ptsz)
(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy_async(Symbol::cuMemcpyDtoDAsync_v2_ptsz, Direction::gpu_to_gpu, dst, src, bytes,
                    stream);
}

POLYPATH_REPLACEMENT(cuMemcpyPeerAsync)
(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
 CUstream stream) {
  return copy_peer_async(Symbol::cuMemcpyPeerAsync, dst, dst_context, src, src_context, bytes,
                         stream);
}

POLYPATH_REPLACEMENT(cuMemcpyPeerAsync_ptsz)
(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
 CUstream stream) {
  return copy_peer_async(Symbol::cuMemcpyPeerAsync_ptsz, dst, dst_context, src, src_context, bytes,
                         stream);
}
