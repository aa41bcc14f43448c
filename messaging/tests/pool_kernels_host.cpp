// The twins of the kernels of pool_kernels.cuh.
#include "pool_kernels.cuh"
