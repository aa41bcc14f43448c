// The kernels of shared_pool_kernels.cuh, for GPUs.
#include "shared_pool_kernels.cuh"
