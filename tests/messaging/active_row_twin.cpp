// The twins of the kernels of active_row.cuh.
#include "active_row.cuh"
