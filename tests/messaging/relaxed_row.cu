// The kernels of relaxed_row.cuh, for GPUs.
#include "relaxed_row.cuh"
