// The collectives that combine nothing.
#include "collectives/kernels/collective_kernels.cuh"

POLYPATH_COLLECTIVE_KERNELS(bytes, polypath::Bytes);
