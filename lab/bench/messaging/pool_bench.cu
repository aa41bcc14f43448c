// The kernels of pool_bench.cuh, for GPUs.
#include "pool_bench.cuh"
