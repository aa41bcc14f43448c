// The kernels of channel_row.cuh, for GPUs.
#include "channel_row.cuh"
