// Matching in MPI's order, and what carries over from batch to batch in any order.
#include "messaging/kernels/leftover_kernels.cuh"
#include "polypath/device/matcher_mpi.cuh"

namespace polypath {

POLYPATH_MATCH_KERNELS(mpi);
POLYPATH_MATCH_TOGETHER(mpi, 1);
POLYPATH_MATCH_MANY_KERNEL(mpi, kMatchManyThreads, kMatchManyBlocks);

}  // namespace polypath
