// The kernels of queue_kernels.cuh, for GPUs.
#include "queue_kernels.cuh"
