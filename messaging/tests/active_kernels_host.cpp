// The twins of the kernels of active_kernels.cuh.
#include "active_kernels.cuh"
