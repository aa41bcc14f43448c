// The twins of the kernels of remote_row.cuh.
#include "remote_row.cuh"
