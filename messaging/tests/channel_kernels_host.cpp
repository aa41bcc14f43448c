// The twins of the kernels of channel_kernels.cuh.
#include "channel_kernels.cuh"
