/* polypath: memory that kernels allocate and free (polypath/device/pool.cuh, shared_pool.cuh):
 * where it lies, and how it went.
 *
 * Blocks of 64, 128, ... 4096 bytes on one GPU, or on the GPU of each rank, where a block may be
 * given to another rank's kernels and come back. Larger memory is the host's.
 *
 * Destroy pools before their communicator. Calls that say "collective" are made by all ranks, as in
 * comm.h. Errors, units and strings: polypath.h.
 */
#ifndef POLYPATH_MESSAGING_POOL_H
#define POLYPATH_MESSAGING_POOL_H

#include "polypath/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A pool, as one rank sees it. Threads: one at a time. */
typedef struct polypath_pool polypath_pool;

/* The same on all ranks. Begin with zeros: 0 is the default. */
typedef struct polypath_pool_options {
  size_t bytes;         /* of blocks, rounded up to slabs: 64 KiB to 32 GiB. No default */
  uint32_t slab_bytes;  /* what one size class takes at a time, and a pool has seven of at least: a
                          power of two, 8 KiB to 4 MiB; 0: 128 KiB, less where that are not 64 */
  uint32_t returns;     /* of shared pools: blocks that may be on their way back from one rank to
                          another, a power of two, 128 at least; 0: 4096. A warp that gives back
                          takes 32 of them, whether it has one block or 32 */
  uint32_t reserved[4]; /* 0 */
} polypath_pool_options;

/* In the memory of this rank's GPU, for its kernels alone. Not collective.
 * POLYPATH_INVALID_ARGUMENT, for all calls that create: what is wrong with the options. */
POLYPATH_API polypath_status polypath_pool_create(polypath_comm* comm,
                                                  const polypath_pool_options* options,
                                                  polypath_pool** pool);
/* Collective: a pool of each rank, in symmetric memory, and queues by which blocks come back.
 * POLYPATH_COMMUNICATOR_ERROR: memory is short on a rank, or options differ. */
POLYPATH_API polypath_status polypath_pool_create_shared(polypath_comm* comm,
                                                         const polypath_pool_options* options,
                                                         polypath_pool** pool);
/* The same for all `ranks` ranks of a communicator that this process has; `pools` has a place for
 * each. */
POLYPATH_API polypath_status polypath_pool_create_shared_all(polypath_comm* const* comms, int ranks,
                                                             const polypath_pool_options* options,
                                                             polypath_pool** pools);

/* Work of all ranks that uses it must have completed. Collective where the creation was. NULL is
 * not allowed. After every status but POLYPATH_INVALID_ARGUMENT the handle is gone. */
POLYPATH_API polypath_status polypath_pool_destroy(polypath_pool* pool);
POLYPATH_API polypath_status polypath_pool_destroy_all(polypath_pool* const* pools, int ranks);

/* What kernels need: a polypath::device::pool_view; of shared pools also a shared_pool_view
 * (polypath/device/pool_view.hpp), whose waits end by the communicator's wait context of when the
 * pool was made. `bytes` its size. What it points to is the pool's. POLYPATH_INVALID_ARGUMENT:
 * another size, as of the headers of another version. */
POLYPATH_API polypath_status polypath_pool_view(const polypath_pool* pool, void* view,
                                                size_t bytes);

/* The size of a pool_view, or of a shared_pool_view where `shared` is not 0. */
POLYPATH_API size_t polypath_pool_view_bytes(int shared);

/* How it went, of this rank's, next to running kernels too: {"bytes", "slab_bytes", "slabs",
 * "shared", "allocated", "freed", "failed", "refused", "held_blocks", "held_bytes",
 * "high_water_bytes", "classes": [{"bytes", "slabs", "held"}]}. Blocks; "failed": none was free;
 * "refused": too large, or freed and no block, or not held. "high_water_bytes": of slabs that ever
 * had a block. For polypath_free_string(). */
POLYPATH_API polypath_status polypath_pool_report(polypath_pool* pool, char** json);

#ifdef __cplusplus
}
#endif

#endif
