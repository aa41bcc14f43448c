// The kernels of shared_pool_row.cuh, for GPUs.
#include "shared_pool_row.cuh"
