// The kernel of device_row.cuh, for GPUs.
#include "device_row.cuh"
