// The kernels of pool_row.cuh, for GPUs.
#include "pool_row.cuh"
