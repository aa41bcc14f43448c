// Copies and fills on streams. All forms are one copy: addresses say where memory lies.
#include <bit>

#include "call.hpp"

using namespace polypath::sim;

namespace {

CUresult copy(std::uintptr_t dst, std::uintptr_t src, std::size_t bytes, CUstream stream) {
  return call([&](Driver& driver) { driver.copy({{dst}, {src}, bytes}, stream, false); });
}

CUresult copy_peer(std::uintptr_t dst, CUcontext dst_context, std::uintptr_t src,
                   CUcontext src_context, std::size_t bytes, CUstream stream) {
  return call([&](Driver& driver) {
    driver.contexts.get(dst_context, CUDA_ERROR_INVALID_CONTEXT);
    driver.contexts.get(src_context, CUDA_ERROR_INVALID_CONTEXT);
    driver.copy({{dst, 0, 0, dst_context}, {src, 0, 0, src_context}, bytes}, stream, false);
  });
}

/// What stream 0 means to the forms of the per-thread default stream.
CUstream per_thread(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

std::uintptr_t address(const void* host) { return std::bit_cast<std::uintptr_t>(host); }

}  // namespace

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(dst, src, bytes, stream);
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(dst, src, bytes, per_thread(stream));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(dst, src, bytes, stream);
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                   CUstream stream) {
  return copy(dst, src, bytes, per_thread(stream));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  return copy(dst, address(src), bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst, const void* src, size_t bytes,
                                   CUstream stream) {
  return copy(dst, address(src), bytes, per_thread(stream));
}

CUresult cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(address(dst), src, bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(address(dst), src, bytes, per_thread(stream));
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                           CUcontext src_context, size_t bytes, CUstream stream) {
  return copy_peer(dst, dst_context, src, src_context, bytes, stream);
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                                CUcontext src_context, size_t bytes, CUstream stream) {
  return copy_peer(dst, dst_context, src, src_context, bytes, per_thread(stream));
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream) {
  return call([&](Driver& driver) { driver.fill(dst, std::byte{value}, count, stream); });
}
