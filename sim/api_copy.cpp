// Copies and fills. All forms are one copy: addresses say where memory lies.
#include <bit>

#include "call.hpp"

using namespace polypath::sim;

namespace {

CUresult copy(std::uintptr_t dst, std::uintptr_t src, std::size_t bytes, CUstream stream) {
  return call([&](Driver& driver) { driver.copy(dst, src, bytes, stream, false); });
}

}  // namespace

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(dst, src, bytes, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(dst, src, bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  return copy(dst, std::bit_cast<std::uintptr_t>(src), bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(std::bit_cast<std::uintptr_t>(dst), src, bytes, stream);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                           CUcontext src_context, size_t bytes, CUstream stream) {
  return call([&](Driver& driver) {
    driver.contexts.get(dst_context, CUDA_ERROR_INVALID_CONTEXT);
    driver.contexts.get(src_context, CUDA_ERROR_INVALID_CONTEXT);
    driver.copy(dst, src, bytes, stream, false);
  });
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return call([&](Driver& driver) { driver.copy(dst, src, bytes, nullptr, true); });
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream) {
  return call([&](Driver& driver) { driver.fill(dst, std::byte{value}, count, stream); });
}
