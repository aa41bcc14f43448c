// The collectives that combine integers of 64 bits, with a sign or without.
#include "collectives/kernels/collective_kernels.cuh"

POLYPATH_COMBINING_KERNELS(int64, std::uint64_t);
