// The kernels of collectives_kernels.cuh, for GPUs.
#include "collectives_kernels.cuh"
