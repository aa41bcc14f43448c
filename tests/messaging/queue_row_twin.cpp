// The twins of the kernels of queue_row.cuh.
#include "queue_row.cuh"
