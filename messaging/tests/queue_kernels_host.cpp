// The twins of the kernels of queue_kernels.cuh.
#include "queue_kernels.cuh"
