// The twins of the kernels of pool_row.cuh.
#include "pool_row.cuh"
