// The collectives that combine integers of 32 bits, with a sign or without.
#include "collectives/kernels/collective_kernels.cuh"

POLYPATH_COMBINING_KERNELS(int32, std::uint32_t);
