// The twins of the kernels of channel_row.cuh.
#include "channel_row.cuh"
