// The collectives that combine elements of float32.
#include "collectives/kernels/collective_kernels.cuh"

POLYPATH_COMBINING_KERNELS(float32, float);
