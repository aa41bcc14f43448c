// The kernels of remote_row.cuh, for GPUs.
#include "remote_row.cuh"
