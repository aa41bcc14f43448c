// Copies of rows and layers, between plain memories: there are no arrays here.
#include <bit>

#include "call.hpp"

using namespace polypath::sim;

namespace {

/// One side, as all the structures name its parts; of the two-dimensional ones without the third
/// dimension.
struct Given {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  std::size_t x;
  std::size_t y;
  std::size_t pitch;
  std::size_t z = 0;
  std::size_t height = 0;
  CUcontext context = nullptr;
};

CopyRequest::Side read_side(const Given& params, const CopyRequest& request) {
  if (params.type == CU_MEMORYTYPE_ARRAY) fail_not_supported("a copy of an array");
  require(params.type == CU_MEMORYTYPE_HOST || params.type == CU_MEMORYTYPE_DEVICE ||
              params.type == CU_MEMORYTYPE_UNIFIED,
          CUDA_ERROR_INVALID_VALUE);
  // A pitch and a height matter only where there is a next row and a next layer.
  const bool has_rows = request.rows > 1 || request.layers > 1 || params.y > 0 || params.z > 0;
  const bool has_layers = request.layers > 1 || params.z > 0;
  require(!has_rows || params.pitch >= params.x + request.bytes, CUDA_ERROR_INVALID_VALUE);
  require(!has_layers || params.height >= params.y + request.rows, CUDA_ERROR_INVALID_VALUE);
  const std::uintptr_t base = params.type == CU_MEMORYTYPE_HOST
                                  ? std::bit_cast<std::uintptr_t>(params.host)
                                  : std::uintptr_t{params.device};
  require(base != 0, CUDA_ERROR_INVALID_VALUE);
  return {base + (params.z * params.height + params.y) * params.pitch + params.x, params.pitch,
          params.pitch * params.height, params.context};
}

CopyRequest read(const Given& dst, const Given& src, std::size_t bytes, std::size_t rows,
                 std::size_t layers) {
  CopyRequest request{{}, {}, bytes, rows, layers};
  if (request.total() == 0) return request;
  request.dst = read_side(dst, request);
  request.src = read_side(src, request);
  return request;
}

CopyRequest read(const CUDA_MEMCPY2D& params) {
  return read({params.dstMemoryType, params.dstHost, params.dstDevice, params.dstXInBytes,
               params.dstY, params.dstPitch},
              {params.srcMemoryType, params.srcHost, params.srcDevice, params.srcXInBytes,
               params.srcY, params.srcPitch},
              params.WidthInBytes, params.Height, 1);
}

/// CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER; the contexts are the latter's.
CopyRequest read(const auto& params, CUcontext dst_context, CUcontext src_context) {
  require(params.srcLOD == 0 && params.dstLOD == 0, CUDA_ERROR_INVALID_VALUE);
  return read({params.dstMemoryType, params.dstHost, params.dstDevice, params.dstXInBytes,
               params.dstY, params.dstPitch, params.dstZ, params.dstHeight, dst_context},
              {params.srcMemoryType, params.srcHost, params.srcDevice, params.srcXInBytes,
               params.srcY, params.srcPitch, params.srcZ, params.srcHeight, src_context},
              params.WidthInBytes, params.Height, params.Depth);
}

CUresult copy(const CUDA_MEMCPY2D* params, CUstream stream, bool is_synchronous) {
  return call(
      [&](Driver& driver) { driver.copies().copy(read(out(params)), stream, is_synchronous); });
}

CUresult copy(const CUDA_MEMCPY3D* params, CUstream stream, bool is_synchronous) {
  return call([&](Driver& driver) {
    driver.copies().copy(read(out(params), nullptr, nullptr), stream, is_synchronous);
  });
}

CUresult copy(const CUDA_MEMCPY3D_PEER* params, CUstream stream, bool is_synchronous) {
  return call([&](Driver& driver) {
    const CUDA_MEMCPY3D_PEER& peer_params = out(params);
    for (const CUcontext context : {peer_params.dstContext, peer_params.srcContext})
      if (context != nullptr) driver.contexts().get(context, CUDA_ERROR_INVALID_CONTEXT);
    driver.copies().copy(read(peer_params, peer_params.dstContext, peer_params.srcContext), stream,
                         is_synchronous);
  });
}

}  // namespace

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* params) { return copy(params, CU_STREAM_LEGACY, true); }

CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* params) {
  return copy(params, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* params) {
  return copy(params, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* params) {
  return copy(params, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* params, CUstream stream) {
  return copy(params, stream, false);
}

CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* params, CUstream stream) {
  return copy(params, per_thread(stream), false);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* params) { return copy(params, CU_STREAM_LEGACY, true); }

CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* params) {
  return copy(params, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* params, CUstream stream) {
  return copy(params, stream, false);
}

CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* params, CUstream stream) {
  return copy(params, per_thread(stream), false);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* params) {
  return copy(params, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* params) {
  return copy(params, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* params, CUstream stream) {
  return copy(params, stream, false);
}

CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* params, CUstream stream) {
  return copy(params, per_thread(stream), false);
}
