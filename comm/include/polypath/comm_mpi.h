/* Communicators of polypath for the ranks of an MPI communicator. Header only, over the MPI of the
 * program that includes it: the library itself knows of none. */
#ifndef POLYPATH_COMM_MPI_H
#define POLYPATH_COMM_MPI_H

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "polypath/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The exchange of polypath_comm_create(); `user` is an MPI_Comm *. */
static inline int polypath_mpi_exchange(const void* local, void* all, size_t bytes, void* user) {
  if (bytes > INT_MAX) return 1;
  return MPI_Allgather(local, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, *(MPI_Comm*)user) !=
         MPI_SUCCESS;
}

/* Messages between nodes: on a communicator of their own, so that no receive of the program matches
 * them. The `user` of a polypath_network. */
typedef struct polypath_mpi_messages {
  MPI_Comm ranks;
  MPI_Comm own;
  int is_kept; /* freed in the end */
} polypath_mpi_messages;

static inline int polypath_mpi_begin(void* user) {
  polypath_mpi_messages* messages = (polypath_mpi_messages*)user;
  return MPI_Comm_dup(messages->ranks, &messages->own) != MPI_SUCCESS;
}

static inline void polypath_mpi_end(void* user) {
  polypath_mpi_messages* messages = (polypath_mpi_messages*)user;
  int is_over = 0;
  MPI_Finalized(&is_over);
  if (!is_over) MPI_Comm_free(&messages->own);
  if (messages->is_kept) free(messages);
}

static inline int polypath_mpi_send(void* user, int to, int tag, const void* bytes, size_t count,
                                    uint64_t* request) {
  MPI_Request pending;
  if (sizeof pending > sizeof *request ||
      MPI_Isend(bytes, (int)count, MPI_BYTE, to, tag, ((polypath_mpi_messages*)user)->own,
                &pending) != MPI_SUCCESS)
    return 1;
  memcpy(request, &pending, sizeof pending);
  return 0;
}

static inline int polypath_mpi_receive(void* user, int from, int tag, void* bytes, size_t count,
                                       uint64_t* request) {
  MPI_Request pending;
  if (sizeof pending > sizeof *request ||
      MPI_Irecv(bytes, (int)count, MPI_BYTE, from, tag, ((polypath_mpi_messages*)user)->own,
                &pending) != MPI_SUCCESS)
    return 1;
  memcpy(request, &pending, sizeof pending);
  return 0;
}

static inline int polypath_mpi_test(void* user, uint64_t* request, int* done) {
  MPI_Request pending;
  int result = 0;
  (void)user;
  memcpy(&pending, request, sizeof pending);
  result = MPI_Test(&pending, done, MPI_STATUS_IGNORE);
  memcpy(request, &pending, sizeof pending);
  return result != MPI_SUCCESS;
}

/* polypath_comm_create() for the ranks of `ranks`, of one node or of several, equally many on each:
 * between nodes, collectives go by messages of this MPI. Collective over `ranks`, which is not used
 * any more when it returns. A rank that never comes, MPI itself has to find.
 *
 * With several nodes (polypath_comm_node_count): where MPI was initialised with
 * MPI_THREAD_MULTIPLE, a thread of polypath calls it; otherwise messages move while the program's
 * thread is in polypath_comm_synchronize, and there alone. Destroy the communicator before
 * MPI_Finalize. */
static inline polypath_status polypath_comm_create_mpi(polypath_context* context, MPI_Comm ranks,
                                                       int gpu,
                                                       const polypath_comm_options* options,
                                                       polypath_comm** comm) {
  int rank = 0;
  int size = 0;
  int threads = 0;
  polypath_status status = POLYPATH_INTERNAL_ERROR;
  polypath_network network;
  polypath_comm_options effective;
  polypath_mpi_messages* messages = (polypath_mpi_messages*)calloc(1, sizeof *messages);
  if (messages == NULL) MPI_Abort(ranks, 1); /* the others would wait without a limit */
  MPI_Comm_rank(ranks, &rank);
  MPI_Comm_size(ranks, &size);
  MPI_Query_thread(&threads);
  memset(&network, 0, sizeof network);
  memset(&effective, 0, sizeof effective);
  if (options != NULL) effective = *options;
  messages->ranks = ranks;
  network.progress_in_caller = threads < MPI_THREAD_MULTIPLE;
  network.user = messages;
  network.begin = &polypath_mpi_begin;
  network.send = &polypath_mpi_send;
  network.receive = &polypath_mpi_receive;
  network.test = &polypath_mpi_test;
  network.end = &polypath_mpi_end;
  if (effective.network == NULL) effective.network = &network;
  status = polypath_comm_create(context, rank, size, gpu, &polypath_mpi_exchange, &ranks,
                                &effective, comm);
  if (status == POLYPATH_SUCCESS && polypath_comm_node_count(*comm) > 1 &&
      effective.network == &network)
    messages->is_kept = 1;
  else
    free(messages);
  return status;
}

#ifdef __cplusplus
}
#endif

#endif
