#include "exec/memcpy_node.hpp"

namespace polypath {

bool has_memcpy_graphs(const CudaDriver& driver) noexcept {
  return driver.graph_create != nullptr && driver.graph_destroy != nullptr &&
         driver.graph_add_memcpy_node != nullptr && driver.graph_instantiate != nullptr &&
         driver.graph_launch != nullptr && driver.graph_exec_destroy != nullptr &&
         driver.graph_exec_memcpy_node_set_params != nullptr;
}

CUDA_MEMCPY3D memcpy_node(MemoryId to, CUdeviceptr dst, MemoryId from, CUdeviceptr src,
                          std::uint64_t bytes) noexcept {
  CUDA_MEMCPY3D what{};
  what.WidthInBytes = bytes;
  what.Height = 1;
  what.Depth = 1;
  if (from.is_gpu()) {
    what.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    what.srcDevice = src;
  } else {
    what.srcMemoryType = CU_MEMORYTYPE_HOST;
    what.srcHost = reinterpret_cast<const void*>(src);
  }
  if (to.is_gpu()) {
    what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    what.dstDevice = dst;
  } else {
    what.dstMemoryType = CU_MEMORYTYPE_HOST;
    what.dstHost = reinterpret_cast<void*>(dst);
  }
  return what;
}

}  // namespace polypath
