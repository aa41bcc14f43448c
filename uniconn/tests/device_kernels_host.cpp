// The twin of the kernel of device_kernels.cuh.
#include "device_kernels.cuh"
