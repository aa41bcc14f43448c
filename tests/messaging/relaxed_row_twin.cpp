// The twins of the kernels of relaxed_row.cuh.
#include "relaxed_row.cuh"
