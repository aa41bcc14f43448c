// The kernels of matching_kernels.cuh, for GPUs.
#include "matching_kernels.cuh"
