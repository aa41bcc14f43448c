/* What the interceptors of a process have in common: one context, and collectives of a foreign
 * communicator (NCCL's, MPI's) on a communicator of polypath. The interceptors translate handles,
 * types and groups. */
#ifndef POLYPATH_OFFLOAD_H
#define POLYPATH_OFFLOAD_H

#include "polypath/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The context of this process, with the settings of the environment: the first call makes it, later
 * ones get the same until it is retired. After a failure the next call tries again. A child of a
 * fork has none of its parent's and makes its own. Each call needs a release. Errors: as
 * polypath_context_create(). Any thread; waits for a thread that is making the context. */
POLYPATH_API polypath_status polypath_offload_acquire_context(polypath_context** context);

/* The caller's transfers have completed, and its communicators are destroyed or abandoned. A
 * retired context without users is destroyed; another one stays for later users. Does nothing for
 * NULL and for a context of a parent process. Any thread. */
POLYPATH_API void polypath_offload_release_context(polypath_context* context);

/* Before a reset of a GPU, which takes what the context has there: the next acquire makes another
 * context. Users keep the retired one until they release it. Any thread. */
POLYPATH_API void polypath_offload_retire_context(void);

typedef enum polypath_offload_op {
  POLYPATH_OFFLOAD_ALL_REDUCE,
  POLYPATH_OFFLOAD_REDUCE_SCATTER,
  POLYPATH_OFFLOAD_REDUCE,
  POLYPATH_OFFLOAD_ALL_GATHER,
  POLYPATH_OFFLOAD_BROADCAST,
  POLYPATH_OFFLOAD_ALL_TO_ALL
} polypath_offload_op;

/* The arguments of polypath_all_reduce() and its like; those that the collective has not are 0. */
typedef struct polypath_offload_call {
  polypath_offload_op op;
  polypath_data_type type;
  polypath_reduce_op reduction;
  int root;
  const void* send;
  void* recv;
  size_t count;
  void* stream;
} polypath_offload_call;

/* Issues the collective. Where the communicator's option retries_buffers is set, a buffer may be
 * memory that kernels do not reach (host memory, or not aligned to its elements): this rank then
 * stages it in memory of its GPU, on the stream. If that fails, the communicator is aborted, since
 * the other ranks wait. `may_wait`: no work of the GPU waits for what the calling thread issues
 * later; only then is memory freed, since that waits for the GPU. Errors: as the collective;
 * POLYPATH_DRIVER_ERROR where staging fails. One thread at a time for each communicator. */
POLYPATH_API polypath_status polypath_offload_collective(polypath_comm* comm,
                                                         const polypath_offload_call* call,
                                                         int may_wait);

#ifdef __cplusplus
}
#endif

#endif
