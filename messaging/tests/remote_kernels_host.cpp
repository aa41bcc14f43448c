// The twins of the kernels of remote_kernels.cuh.
#include "remote_kernels.cuh"
