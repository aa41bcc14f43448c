// The kernels of remote_kernels.cuh, for GPUs.
#include "remote_kernels.cuh"
