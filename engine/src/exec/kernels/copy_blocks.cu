// The kernel that copies small blocks between host memory and GPUs, or between GPUs. All GPUs of a
// batch run it at once, each on its own part of the table, and each over its own host link.
#include "exec/kernels/copy_blocks.cuh"

SIMT_KERNEL(polypath_copy_blocks, polypath::kCopyBlocksThreads, polypath::CopyBlocksArgs args) {
#if defined(__CUDACC__)
  polypath::copy_blocks(polypath::device::this_warp{}, args);
#else
  // A team of one: a simulated device then has as much in flight as a GPU, with few threads.
  polypath::copy_blocks(polypath::device::this_thread{}, args);
#endif
}
SIMT_EMULATED_THREADS(polypath_copy_blocks, 32);
