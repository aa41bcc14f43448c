// The kernels of pool_kernels.cuh, for GPUs.
#include "pool_kernels.cuh"
