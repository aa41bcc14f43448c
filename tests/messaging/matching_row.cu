// The kernels of matching_row.cuh, for GPUs.
#include "matching_row.cuh"
