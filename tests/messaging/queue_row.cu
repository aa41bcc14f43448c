// The kernels of queue_row.cuh, for GPUs.
#include "queue_row.cuh"
