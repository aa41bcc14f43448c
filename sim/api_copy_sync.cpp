// Copies without a stream: on the default stream, and waited for where host memory is on a side.
#include <bit>

#include "call.hpp"

using namespace polypath::sim;

namespace {

CUresult copy(std::uintptr_t dst, std::uintptr_t src, std::size_t bytes, CUstream stream) {
  return call([&](Driver& driver) { driver.copy({{dst}, {src}, bytes}, stream, true); });
}

CUresult copy_peer(std::uintptr_t dst, CUcontext dst_context, std::uintptr_t src,
                   CUcontext src_context, std::size_t bytes, CUstream stream) {
  return call([&](Driver& driver) {
    driver.contexts.get(dst_context, CUDA_ERROR_INVALID_CONTEXT);
    driver.contexts.get(src_context, CUDA_ERROR_INVALID_CONTEXT);
    driver.copy({{dst, 0, 0, dst_context}, {src, 0, 0, src_context}, bytes}, stream, true);
  });
}

std::uintptr_t address(const void* host) { return std::bit_cast<std::uintptr_t>(host); }

}  // namespace

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy(dst, src, bytes, CU_STREAM_LEGACY);
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy(dst, src, bytes, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void* src, size_t bytes) {
  return copy(dst, address(src), bytes, CU_STREAM_LEGACY);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dst, const void* src, size_t bytes) {
  return copy(dst, address(src), bytes, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpyDtoH_v2(void* dst, CUdeviceptr src, size_t bytes) {
  return copy(address(dst), src, bytes, CU_STREAM_LEGACY);
}

CUresult cuMemcpyDtoH_v2_ptds(void* dst, CUdeviceptr src, size_t bytes) {
  return copy(address(dst), src, bytes, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy(dst, src, bytes, CU_STREAM_LEGACY);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy(dst, src, bytes, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                      CUcontext src_context, size_t bytes) {
  return copy_peer(dst, dst_context, src, src_context, bytes, CU_STREAM_LEGACY);
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                           CUcontext src_context, size_t bytes) {
  return copy_peer(dst, dst_context, src, src_context, bytes, CU_STREAM_PER_THREAD);
}
