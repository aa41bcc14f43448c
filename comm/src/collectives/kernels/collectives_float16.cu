// The collectives that combine elements of float16.
#include "collectives/kernels/collective_kernels.cuh"

POLYPATH_COMBINING_KERNELS(float16, polypath::simt::float16);
