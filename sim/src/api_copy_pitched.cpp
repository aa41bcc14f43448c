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

CopyRequest::Side read_side(const Given& given, const CopyRequest& wanted) {
  if (given.type == CU_MEMORYTYPE_ARRAY) fail_not_supported("a copy of an array");
  require(given.type == CU_MEMORYTYPE_HOST || given.type == CU_MEMORYTYPE_DEVICE ||
              given.type == CU_MEMORYTYPE_UNIFIED,
          CUDA_ERROR_INVALID_VALUE);
  // A pitch and a height matter only where there is a next row and a next layer.
  const bool has_rows = wanted.rows > 1 || wanted.layers > 1 || given.y > 0 || given.z > 0;
  const bool has_layers = wanted.layers > 1 || given.z > 0;
  require(!has_rows || given.pitch >= given.x + wanted.bytes, CUDA_ERROR_INVALID_VALUE);
  require(!has_layers || given.height >= given.y + wanted.rows, CUDA_ERROR_INVALID_VALUE);
  const std::uintptr_t base = given.type == CU_MEMORYTYPE_HOST
                                  ? std::bit_cast<std::uintptr_t>(given.host)
                                  : std::uintptr_t{given.device};
  require(base != 0, CUDA_ERROR_INVALID_VALUE);
  return {base + (given.z * given.height + given.y) * given.pitch + given.x, given.pitch,
          given.pitch * given.height, given.context};
}

CopyRequest read(const Given& dst, const Given& src, std::size_t bytes, std::size_t rows,
                 std::size_t layers) {
  CopyRequest wanted{{}, {}, bytes, rows, layers};
  if (wanted.total() == 0) return wanted;
  wanted.dst = read_side(dst, wanted);
  wanted.src = read_side(src, wanted);
  return wanted;
}

CopyRequest read(const CUDA_MEMCPY2D& given) {
  return read({given.dstMemoryType, given.dstHost, given.dstDevice, given.dstXInBytes, given.dstY,
               given.dstPitch},
              {given.srcMemoryType, given.srcHost, given.srcDevice, given.srcXInBytes, given.srcY,
               given.srcPitch},
              given.WidthInBytes, given.Height, 1);
}

/// CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER; the contexts are the latter's.
CopyRequest read(const auto& given, CUcontext dst_context, CUcontext src_context) {
  require(given.srcLOD == 0 && given.dstLOD == 0, CUDA_ERROR_INVALID_VALUE);
  return read({given.dstMemoryType, given.dstHost, given.dstDevice, given.dstXInBytes, given.dstY,
               given.dstPitch, given.dstZ, given.dstHeight, dst_context},
              {given.srcMemoryType, given.srcHost, given.srcDevice, given.srcXInBytes, given.srcY,
               given.srcPitch, given.srcZ, given.srcHeight, src_context},
              given.WidthInBytes, given.Height, given.Depth);
}

CUresult copy(const CUDA_MEMCPY2D* given, CUstream stream, bool is_synchronous) {
  return call([&](Driver& driver) { driver.copy(read(out(given)), stream, is_synchronous); });
}

CUresult copy(const CUDA_MEMCPY3D* given, CUstream stream, bool is_synchronous) {
  return call([&](Driver& driver) {
    driver.copy(read(out(given), nullptr, nullptr), stream, is_synchronous);
  });
}

CUresult copy(const CUDA_MEMCPY3D_PEER* given, CUstream stream, bool is_synchronous) {
  return call([&](Driver& driver) {
    const CUDA_MEMCPY3D_PEER& wanted = out(given);
    for (const CUcontext context : {wanted.dstContext, wanted.srcContext})
      if (context != nullptr) driver.contexts.get(context, CUDA_ERROR_INVALID_CONTEXT);
    driver.copy(read(wanted, wanted.dstContext, wanted.srcContext), stream, is_synchronous);
  });
}

}  // namespace

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* wanted) { return copy(wanted, CU_STREAM_LEGACY, true); }

CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* wanted) {
  return copy(wanted, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* wanted) {
  return copy(wanted, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* wanted) {
  return copy(wanted, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* wanted, CUstream stream) {
  return copy(wanted, stream, false);
}

CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* wanted, CUstream stream) {
  return copy(wanted, per_thread(stream), false);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* wanted) { return copy(wanted, CU_STREAM_LEGACY, true); }

CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* wanted) {
  return copy(wanted, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* wanted, CUstream stream) {
  return copy(wanted, stream, false);
}

CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* wanted, CUstream stream) {
  return copy(wanted, per_thread(stream), false);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* wanted) {
  return copy(wanted, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* wanted) {
  return copy(wanted, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* wanted, CUstream stream) {
  return copy(wanted, stream, false);
}

CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* wanted, CUstream stream) {
  return copy(wanted, per_thread(stream), false);
}
