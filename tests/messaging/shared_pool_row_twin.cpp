// The twins of the kernels of shared_pool_row.cuh.
#include "shared_pool_row.cuh"
