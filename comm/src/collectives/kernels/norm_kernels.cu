// Rows that are normalised after an allreduce: in one kernel with it, and alone.
#include "collectives/kernels/all_reduce_norm.cuh"

#if defined(__CUDACC__)
#define POLYPATH_NORM_PARAMETER const __grid_constant__
#define POLYPATH_NORM_FOLDS(name) static_assert(true)
#else
#define POLYPATH_NORM_PARAMETER const
#define POLYPATH_NORM_FOLDS(name) SIMT_EMULATED_THREADS(name, 32)
#endif

/// `blocks`: on a multiprocessor at once.
#define POLYPATH_NORM_KERNEL(part, name, blocks, Element)                         \
  SIMT_KERNEL_MIN_BLOCKS(polypath_##name, ::polypath::kCollectiveThreads, blocks, \
                         POLYPATH_NORM_PARAMETER ::polypath::NormArgs args) {     \
    ::polypath::part::run<Element>(args);                                         \
  }                                                                               \
  POLYPATH_NORM_FOLDS(polypath_##name)

POLYPATH_NORM_KERNEL(all_reduce_norm, all_reduce_norm_float16, 1, ::polypath::simt::float16);
POLYPATH_NORM_KERNEL(all_reduce_norm, all_reduce_norm_bfloat16, 1, ::polypath::simt::bfloat16);
POLYPATH_NORM_KERNEL(norm, rms_norm_float16, 2, ::polypath::simt::float16);
POLYPATH_NORM_KERNEL(norm, rms_norm_bfloat16, 2, ::polypath::simt::bfloat16);
