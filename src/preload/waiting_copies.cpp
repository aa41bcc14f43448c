// Copies that the calling thread waits for: those with host memory on a side. Between GPUs these forms return
// before the copy is done (CUDA: "API synchronization behavior"), here too.
#include "preload/driver_calls.hpp"
#include "preload/hand_over.hpp"

namespace polypath::preload {
namespace {

/// Memory that CUDA does not know is the host's.
bool is_host_memory(CUdeviceptr address) noexcept {
  unsigned int type = CU_MEMORYTYPE_HOST;
  const CUresult result = driver::pointer_get_attribute(static_cast<void*>(&type),
                                                        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  return result != CUDA_SUCCESS || type == CU_MEMORYTYPE_HOST;
}

bool is_waited_for(const Copy& copy) noexcept {
  switch (copy.direction) {
    case Direction::host_to_gpu:
    case Direction::gpu_to_host: return true;
    case Direction::gpu_to_gpu:
    case Direction::any: break;
  }
  return is_host_memory(copy.dst) || is_host_memory(copy.src);
}

template <typename Native>
CUresult carry_and_wait(const Copy& copy, Native&& native) noexcept {
  if (takes_short_way(copy)) [[likely]] {
    count_call(copy.symbol, copy.bytes);
    return native();
  }
  begin_process();
  count_call(copy.symbol, copy.bytes);
  WaitSample sample(copy);
  CUresult result = CUDA_SUCCESS;
  const bool is_issued = hand_over(copy, &result);
  if (!is_issued) result = native();
  if (result != CUDA_SUCCESS || !is_waited_for(copy)) return result;
  if (is_issued) result = driver::stream_synchronize(stream_of(copy));
  sample.end(result, is_issued);
  return result;
}

template <typename Destination, typename Source>
CUresult copy_and_wait(Symbol symbol, Direction direction, Destination dst, Source src,
                       std::size_t bytes) noexcept {
  return carry_and_wait({symbol, direction, address_of(dst), address_of(src), bytes, nullptr},
                        [=] { return call_driver(symbol, dst, src, bytes); });
}

CUresult copy_peer(Symbol symbol, CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                   CUcontext src_context, std::size_t bytes) noexcept {
  const PeerContexts contexts{dst_context, src_context};
  return carry_and_wait({symbol, Direction::gpu_to_gpu, dst, src, bytes, nullptr, &contexts}, [=] {
    return call_driver(symbol, dst, dst_context, src, src_context, bytes);
  });
}

}  // namespace
}  // namespace polypath::preload

using namespace polypath::preload;

POLYPATH_REPLACEMENT(cuMemcpy)(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpy, Direction::any, dst, src, bytes);
}

POLYPATH_REPLACEMENT(cuMemcpy_ptds)(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpy_ptds, Direction::any, dst, src, bytes);
}

POLYPATH_REPLACEMENT(cuMemcpyHtoD_v2)(CUdeviceptr dst, const void* src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyHtoD_v2, Direction::host_to_gpu, dst, src, bytes);
}

POLYPATH_REPLACEMENT(cuMemcpyHtoD_v2_ptds)(CUdeviceptr dst, const void* src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyHtoD_v2_ptds, Direction::host_to_gpu, dst, src, bytes);
}

POLYPATH_REPLACEMENT(cuMemcpyDtoH_v2)(void* dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyDtoH_v2, Direction::gpu_to_host, dst, src, bytes);
}

POLYPATH_REPLACEMENT(cuMemcpyDtoH_v2_ptds)(void* dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyDtoH_v2_ptds, Direction::gpu_to_host, dst, src, bytes);
}

POLYPATH_REPLACEMENT(cuMemcpyDtoD_v2)(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyDtoD_v2, Direction::gpu_to_gpu, dst, src, bytes);
}

POLYPATH_REPLACEMENT(cuMemcpyDtoD_v2_ptds)(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy_and_wait(Symbol::cuMemcpyDtoD_v2_ptds, Direction::gpu_to_gpu, dst, src, bytes);
}

POLYPATH_REPLACEMENT(cuMemcpyPeer)
(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes) {
  return copy_peer(Symbol::cuMemcpyPeer, dst, dst_context, src, src_context, bytes);
}

POLYPATH_REPLACEMENT(cuMemcpyPeer_ptds)
(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes) {
  return copy_peer(Symbol::cuMemcpyPeer_ptds, dst, dst_context, src, src_context, bytes);
}
