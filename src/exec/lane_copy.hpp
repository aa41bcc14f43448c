// One copy over an emulated link, as a kernel launch: a plain value that a stream runs, or that a node of a
// CUDA graph carries.
#pragma once

#include <array>
#include <cstdint>

#include "driver/cuda_driver.hpp"

namespace polypath {

struct LaneCopy {
  CUfunction function = nullptr;  ///< belongs to the primary context of the GPU that copies
  unsigned int blocks = 0;        ///< lanes of the link
  unsigned int threads = 0;
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
  std::uint64_t bytes = 0;
  CUdeviceptr lanes = 0;  ///< of the link: `blocks` LaneQueues

  /// What kernelParams points to.
  using Arguments = std::array<void*, 4>;
  /// Pointers to this value's members: valid while it neither ends nor moves. The driver reads them within
  /// the call that gets them.
  Arguments arguments() noexcept { return {&dst, &src, &bytes, &lanes}; }

  /// Issues it on `stream`, a stream of the function's context, which must be current.
  CUresult launch(const CudaDriver& driver, CUstream stream) {
    Arguments pointers = arguments();
    return driver.launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers.data(),
                                nullptr);
  }

  /// For graph_add_kernel_node and graph_exec_kernel_node_set_params; `storage` must live as long as this
  /// value until the call has returned. An instantiated node may get other addresses, sizes and links,
  /// but its function must be of the same context.
  CUDA_KERNEL_NODE_PARAMS node_params(Arguments& storage) noexcept {
    storage = arguments();
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = function;
    params.gridDimX = blocks;
    params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = threads;
    params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = storage.data();
    return params;
  }
};

}  // namespace polypath
