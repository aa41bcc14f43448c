// Copies on a stream, and those that the calling thread waits for. Of copies of two and three
// dimensions, what is contiguous on both sides is one linear copy; the rest is the driver's.
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

// ---- of two and three dimensions ----------------------------------------------------------------

/// One side of a copy: where its first byte is, and how rows and layers follow each other.
struct Side {
  CUmemorytype type;
  CUdeviceptr start;
  std::size_t pitch;   ///< bytes from row to row
  std::size_t height;  ///< rows from layer to layer
  std::size_t x;       ///< bytes into the row
};

struct Extent {
  std::size_t width;  ///< bytes
  std::size_t height;
  std::size_t depth;
};

Side side_of(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t pitch,
             std::size_t height, std::size_t x, std::size_t y, std::size_t z) noexcept {
  const CUdeviceptr base = type == CU_MEMORYTYPE_HOST ? address_of(host) : device;
  return {type, base + (z * height + y) * pitch + x, pitch, height, x};
}

bool is_memory(const Side& side) noexcept {
  return side.type == CU_MEMORYTYPE_HOST || side.type == CU_MEMORYTYPE_DEVICE ||
         side.type == CU_MEMORYTYPE_UNIFIED;
}

bool is_contiguous(const Side& side, const Extent& extent) noexcept {
  return side.x <= side.pitch && extent.width <= side.pitch - side.x &&
         (extent.width == side.pitch || (extent.height == 1 && extent.depth == 1)) &&
         (extent.height == side.height || extent.depth == 1);
}

/// Sets direction, addresses and bytes; no bytes for what is no plain memory. False: it is not
/// contiguous, or nothing that the engine can carry.
bool flatten(const Side& dst, const Side& src, const Extent& extent, Copy* copy) noexcept {
  std::size_t rows = 0;
  if (!is_memory(dst) || !is_memory(src) ||
      __builtin_mul_overflow(extent.height, extent.depth, &rows) ||
      __builtin_mul_overflow(rows, extent.width, &copy->bytes)) {
    copy->bytes = 0;
    return false;
  }
  copy->dst = dst.start;
  copy->src = src.start;
  if (src.type == CU_MEMORYTYPE_HOST)
    copy->direction = Direction::host_to_gpu;
  else if (dst.type == CU_MEMORYTYPE_HOST)
    copy->direction = Direction::gpu_to_host;
  else if (src.type == CU_MEMORYTYPE_DEVICE && dst.type == CU_MEMORYTYPE_DEVICE)
    copy->direction = Direction::gpu_to_gpu;
  else
    copy->direction = Direction::any;
  return is_contiguous(dst, extent) && is_contiguous(src, extent) &&
         (src.type != CU_MEMORYTYPE_HOST || dst.type != CU_MEMORYTYPE_HOST);
}

bool flatten(const CUDA_MEMCPY2D& shape, Copy* copy, PeerContexts*) noexcept {
  const auto& s = shape;
  return flatten(
      side_of(s.dstMemoryType, s.dstHost, s.dstDevice, s.dstPitch, 0, s.dstXInBytes, s.dstY, 0),
      side_of(s.srcMemoryType, s.srcHost, s.srcDevice, s.srcPitch, 0, s.srcXInBytes, s.srcY, 0),
      {s.WidthInBytes, s.Height, 1}, copy);
}

/// CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have these fields in common.
template <typename Shape>
bool flatten_3d(const Shape& s, Copy* copy) noexcept {
  return s.srcLOD == 0 && s.dstLOD == 0 &&
         flatten(side_of(s.dstMemoryType, s.dstHost, s.dstDevice, s.dstPitch, s.dstHeight,
                         s.dstXInBytes, s.dstY, s.dstZ),
                 side_of(s.srcMemoryType, s.srcHost, s.srcDevice, s.srcPitch, s.srcHeight,
                         s.srcXInBytes, s.srcY, s.srcZ),
                 {s.WidthInBytes, s.Height, s.Depth}, copy);
}

bool flatten(const CUDA_MEMCPY3D& shape, Copy* copy, PeerContexts*) noexcept {
  return flatten_3d(shape, copy);
}

bool flatten(const CUDA_MEMCPY3D_PEER& shape, Copy* copy, PeerContexts* contexts) noexcept {
  *contexts = {shape.dstContext, shape.srcContext};
  copy->contexts = contexts;
  return shape.srcMemoryType == CU_MEMORYTYPE_DEVICE &&
         shape.dstMemoryType == CU_MEMORYTYPE_DEVICE && flatten_3d(shape, copy);
}

template <typename Shape>
CUresult copy_shape(Symbol symbol, const Shape* shape) noexcept {
  Copy copy{symbol, Direction::any, 0, 0, 0, nullptr};
  PeerContexts contexts{};
  const auto native = [=] { return call_driver(symbol, shape); };
  if (shape != nullptr && flatten(*shape, &copy, &contexts))
    return dispatch_copy_and_wait(copy, native);
  init_process();
  count_call(symbol, 0);
  note_native(copy);
  return native();
}

template <typename Shape>
CUresult copy_shape_async(Symbol symbol, const Shape* shape, CUstream stream) noexcept {
  Copy copy{symbol, Direction::any, 0, 0, 0, stream};
  PeerContexts contexts{};
  const auto native = [=] { return call_driver(symbol, shape, stream); };
  if (shape != nullptr && flatten(*shape, &copy, &contexts)) return carry(copy, native);
  return leave_to_driver(copy, 0, native);
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

#define POLYPATH_COPY_SHAPE(name, Shape) \
  POLYPATH_INTERCEPTOR(name)(const Shape* shape) { return copy_shape(Symbol::name, shape); }
#define POLYPATH_COPY_SHAPE_ASYNC(name, Shape)                      \
  POLYPATH_INTERCEPTOR(name)(const Shape* shape, CUstream stream) { \
    return copy_shape_async(Symbol::name, shape, stream);           \
  }

POLYPATH_COPY_SHAPE(cuMemcpy2D_v2, CUDA_MEMCPY2D)
POLYPATH_COPY_SHAPE(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D)
POLYPATH_COPY_SHAPE(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D)
POLYPATH_COPY_SHAPE(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D)
POLYPATH_COPY_SHAPE(cuMemcpy3D_v2, CUDA_MEMCPY3D)
POLYPATH_COPY_SHAPE(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D)
POLYPATH_COPY_SHAPE(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER)
POLYPATH_COPY_SHAPE(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER)
POLYPATH_COPY_SHAPE_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D)
POLYPATH_COPY_SHAPE_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D)
POLYPATH_COPY_SHAPE_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D)
POLYPATH_COPY_SHAPE_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D)
POLYPATH_COPY_SHAPE_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER)
POLYPATH_COPY_SHAPE_ASYNC(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER)
