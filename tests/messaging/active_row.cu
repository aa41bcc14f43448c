// The kernels of active_row.cuh, for GPUs.
#include "active_row.cuh"
