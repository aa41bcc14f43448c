// The twins of the kernels of collectives_row.cuh.
#include "collectives_row.cuh"
