// The collectives that combine elements of bfloat16.
#include "collectives/kernels/collective_kernels.cuh"

POLYPATH_COMBINING_KERNELS(bfloat16, polypath::simt::bfloat16);
