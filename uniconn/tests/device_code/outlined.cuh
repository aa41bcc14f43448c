// NVSHMEM's longest functions, declared alone: kernels call them, and the compiler takes ten times
// as long for what NVSHMEM's headers have in them, which is nothing that is compared. The types are
// those of the headers' functions; none of these is inlined there either.
#pragma once

#if defined(__CUDA_ARCH__)  // NVSHMEM declares them for the device alone

#define OUTLINED(call)                                                   \
  extern "C" __device__ decltype(nvshmem_##call) outlined_##call;        \
  extern "C" __device__ decltype(nvshmem_##call) outlined_##call##_warp; \
  extern "C" __device__ decltype(nvshmem_##call) outlined_##call##_block;
OUTLINED(fcollectmem)
OUTLINED(broadcastmem)
OUTLINED(float_sum_reduce)
OUTLINED(double_max_reduce)
#undef OUTLINED

#define nvshmem_fcollectmem outlined_fcollectmem
#define nvshmemx_fcollectmem_warp outlined_fcollectmem_warp
#define nvshmemx_fcollectmem_block outlined_fcollectmem_block
#define nvshmem_broadcastmem outlined_broadcastmem
#define nvshmemx_broadcastmem_warp outlined_broadcastmem_warp
#define nvshmemx_broadcastmem_block outlined_broadcastmem_block
#define nvshmem_float_sum_reduce outlined_float_sum_reduce
#define nvshmemx_float_sum_reduce_warp outlined_float_sum_reduce_warp
#define nvshmemx_float_sum_reduce_block outlined_float_sum_reduce_block
#define nvshmem_double_max_reduce outlined_double_max_reduce
#define nvshmemx_double_max_reduce_warp outlined_double_max_reduce_warp
#define nvshmemx_double_max_reduce_block outlined_double_max_reduce_block

#endif
