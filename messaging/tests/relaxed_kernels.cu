// The kernels of relaxed_kernels.cuh, for GPUs.
#include "relaxed_kernels.cuh"
