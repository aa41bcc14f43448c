// The twins of the kernels of collectives_kernels.cuh.
#include "collectives_kernels.cuh"
