// The twin of the kernel of device_row.cuh.
#include "device_row.cuh"
