// The collectives that combine elements of float64.
#include "collectives/kernels/collective_kernels.cuh"

POLYPATH_COMBINING_KERNELS(float64, double);
