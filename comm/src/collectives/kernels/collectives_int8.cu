// The collectives that combine integers of 8 bits, with a sign or without.
#include "collectives/kernels/collective_kernels.cuh"

POLYPATH_COMBINING_KERNELS(int8, std::uint8_t);
