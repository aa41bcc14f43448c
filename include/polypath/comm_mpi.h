/* Communicators of polypath for the ranks of an MPI communicator. Header only, over the MPI of the
 * program that includes it: the library itself knows of none. */
#ifndef POLYPATH_COMM_MPI_H
#define POLYPATH_COMM_MPI_H

#include <limits.h>
#include <mpi.h>

#include "polypath/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The exchange of polypath_comm_create(); `user` is an MPI_Comm *. */
static inline int polypath_mpi_exchange(const void* mine, void* all, size_t bytes, void* user) {
  if (bytes > INT_MAX) return 1;
  return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, *(MPI_Comm*)user) !=
         MPI_SUCCESS;
}

/* polypath_comm_create() for the ranks of `ranks`, which are of one machine: those that
 * MPI_Comm_split_type(..., MPI_COMM_TYPE_SHARED, ...) puts together. Collective over `ranks`, which
 * is not used any more when it returns. A rank that never comes, MPI itself has to find. */
static inline polypath_status polypath_comm_create_mpi(polypath_context* context, MPI_Comm ranks,
                                                       int gpu,
                                                       const polypath_comm_options* options,
                                                       polypath_comm** comm) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(ranks, &rank);
  MPI_Comm_size(ranks, &size);
  return polypath_comm_create(context, rank, size, gpu, &polypath_mpi_exchange, &ranks, options,
                              comm);
}

#ifdef __cplusplus
}
#endif

#endif
