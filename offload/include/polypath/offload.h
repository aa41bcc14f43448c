/* Collectives of a foreign communicator (NCCL's, MPI's) on a communicator of polypath: for the
 * interceptors, which translate handles, types and groups. */
#ifndef POLYPATH_OFFLOAD_H
#define POLYPATH_OFFLOAD_H

#include "polypath/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

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
