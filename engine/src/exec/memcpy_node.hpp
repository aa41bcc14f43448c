// A memcpy node of a CUDA graph: one copy of one dimension, the only kind that can be given other
// addresses when the graph has been instantiated.
#pragma once

#include <cstdint>

#include "driver/cuda_driver.hpp"
#include "topology/node.hpp"

namespace polypath {

/// Whether the driver has what graphs of such copies need.
bool has_memcpy_graphs(const CudaDriver& driver) noexcept;

/// The parameters of a copy of `bytes` from `src`, in the memory `from`, to `dst`, in the memory
/// `to`.
CUDA_MEMCPY3D memcpy_node(MemoryId to, CUdeviceptr dst, MemoryId from, CUdeviceptr src,
                          std::uint64_t bytes) noexcept;

}  // namespace polypath
