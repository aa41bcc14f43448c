// The twins of the kernels of matching_row.cuh.
#include "matching_row.cuh"
