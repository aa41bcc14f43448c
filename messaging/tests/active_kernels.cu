// The kernels of active_kernels.cuh, for GPUs.
#include "active_kernels.cuh"
