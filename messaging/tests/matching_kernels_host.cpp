// The twins of the kernels of matching_kernels.cuh.
#include "matching_kernels.cuh"
