// One contiguous copy, as a node of a graph takes it.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace polypath::sim::test {

inline CUDA_MEMCPY3D copy_parameters(CUdeviceptr dst, CUdeviceptr src, std::size_t bytes) {
  CUDA_MEMCPY3D parameters{};
  parameters.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  parameters.srcDevice = src;
  parameters.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  parameters.dstDevice = dst;
  parameters.WidthInBytes = bytes;
  parameters.Height = 1;
  parameters.Depth = 1;
  return parameters;
}

}  // namespace polypath::sim::test
