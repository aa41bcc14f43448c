// The twins of the kernels of relaxed_kernels.cuh.
#include "relaxed_kernels.cuh"
