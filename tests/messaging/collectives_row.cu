// The kernels of collectives_row.cuh, for GPUs.
#include "collectives_row.cuh"
