// The twins of the kernels of shared_pool_kernels.cuh.
#include "shared_pool_kernels.cuh"
