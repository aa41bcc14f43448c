// The kernels of collectives_bench.cuh, for GPUs.
#include "collectives_bench.cuh"
