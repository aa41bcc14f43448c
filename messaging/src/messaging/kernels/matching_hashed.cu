// Matching without order: of keys that come several times, and of keys that come once.
#include "messaging/kernels/matching_kernels.cuh"
#include "polypath/device/grid_relaxed.cuh"

namespace polypath {

POLYPATH_MATCH_KERNELS(hashed);
POLYPATH_MATCH_KERNELS(hashed_unique);
POLYPATH_MATCH_MANY_KERNEL(hashed_unique, kMatchTableThreads, kMatchTableBlocks);

}  // namespace polypath
