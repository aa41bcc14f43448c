/* UNICONN from C: communication over the library that is chosen as the program starts. A thin layer
 * over AnyBackend (polypath/uniconn/backend/any.hpp), without MPI; docs/uniconn.md has the choice
 * (POLYPATH_BACKEND) and what calls mean.
 *
 * Everything that is made of an environment keeps what it needs of it, and is destroyed by its own
 * call; all of them, in the end, by all ranks. Calls marked as collective are made by all ranks in
 * the same order, and wait for each other on the host.
 *
 * Threads: one rank a process, and its calls from one thread at a time; or ranks that are threads,
 * each with all its calls on its own. Errors: polypath.h. POLYPATH_INVALID_ARGUMENT: nothing was
 * issued. POLYPATH_COMMUNICATOR_ERROR: a rank, or the library of the backend, failed.
 * POLYPATH_NOT_SUPPORTED: what POLYPATH_BACKEND names is missing here, and how to get it. */
#ifndef POLYPATH_UNICONN_H
#define POLYPATH_UNICONN_H

#include "polypath/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Environment: the library, and this rank's GPU ------------------------------------------- */

typedef struct polypath_uniconn_env polypath_uniconn_env;

/* Ranks that meet by `exchange` (comm.h), which with its `user` has to outlive all that is made of
 * the environment. `is_thread`: 1 for ranks that are threads of this process, else 0.
 * POLYPATH_INVALID_ARGUMENT: this rank has an environment already. Collective. */
POLYPATH_API polypath_status polypath_uniconn_env_create(int rank, int size,
                                                         polypath_all_gather_fn exchange,
                                                         void* user, int is_thread,
                                                         polypath_uniconn_env** env);
/* The ranks by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun and others set;
 * without them one rank alone. Collective. */
POLYPATH_API polypath_status
polypath_uniconn_env_create_from_environment(polypath_uniconn_env** env);
/* NULL is allowed. */
POLYPATH_API void polypath_uniconn_env_destroy(polypath_uniconn_env* env);
/* Makes the primary context of the GPU current; chooses the library, the same on all ranks, and
 * begins it. Collective, once; on all ranks or on none. */
POLYPATH_API polypath_status polypath_uniconn_set_device(polypath_uniconn_env* env, int gpu);
/* Which library: "polypath", "gpuccl", "gpushmem"; and why, for a person. "" before set_device, and
 * for NULL. They live as long as the environment. */
POLYPATH_API const char* polypath_uniconn_backend(const polypath_uniconn_env* env);
POLYPATH_API const char* polypath_uniconn_reason(const polypath_uniconn_env* env);
/* -1 for NULL. */
POLYPATH_API int polypath_uniconn_world_rank(const polypath_uniconn_env* env);
POLYPATH_API int polypath_uniconn_world_size(const polypath_uniconn_env* env);
POLYPATH_API int polypath_uniconn_node_rank(const polypath_uniconn_env* env);
POLYPATH_API int polypath_uniconn_node_size(const polypath_uniconn_env* env);

/* ---- Memory: of this rank's GPU; collective -------------------------------------------------- */

/* NULL for 0 bytes; as many on all ranks. It is of this thread's environment, and is freed before
 * that is destroyed. */
POLYPATH_API polypath_status polypath_uniconn_alloc(size_t bytes, void** address);
/* NULL is allowed. Work of all ranks that uses it must have completed. */
POLYPATH_API polypath_status polypath_uniconn_free(void* address);

/* ---- Communicator ---------------------------------------------------------------------------- */

typedef struct polypath_uniconn_comm polypath_uniconn_comm;

/* All ranks of this rank's environment. Collective. */
POLYPATH_API polypath_status polypath_uniconn_comm_create(polypath_uniconn_comm** comm);
/* Collective: one for the ranks of each color, ordered by key, then by rank. A negative color:
 * none, and *part is NULL. */
POLYPATH_API polypath_status polypath_uniconn_comm_split(polypath_uniconn_comm* comm, int color,
                                                         int key, polypath_uniconn_comm** part);
/* NULL is allowed. All work that uses it must have completed. */
POLYPATH_API void polypath_uniconn_comm_destroy(polypath_uniconn_comm* comm);
/* -1 for NULL. */
POLYPATH_API int polypath_uniconn_comm_rank(const polypath_uniconn_comm* comm);
POLYPATH_API int polypath_uniconn_comm_size(const polypath_uniconn_comm* comm);
/* The stream goes on when those of all ranks have come to their call. */
POLYPATH_API polypath_status polypath_uniconn_barrier(polypath_uniconn_comm* comm, void* stream);

/* ---- Coordinator: operations of one stream, one after another ------------------------------- */

typedef struct polypath_uniconn_coordinator polypath_uniconn_coordinator;

/* `stream`: a CUstream of this rank's GPU; NULL is its legacy default stream. */
POLYPATH_API polypath_status
polypath_uniconn_coordinator_create(void* stream, polypath_uniconn_coordinator** coordinator);
/* NULL is allowed. */
POLYPATH_API void polypath_uniconn_coordinator_destroy(polypath_uniconn_coordinator* coordinator);

/* What is between is under way together, in no order. What comes on the stream after the end finds
 * all that was acknowledged, and may overwrite all that was posted. */
POLYPATH_API polypath_status polypath_uniconn_start(polypath_uniconn_coordinator* coordinator);
POLYPATH_API polypath_status polypath_uniconn_end(polypath_uniconn_coordinator* coordinator);
/* The host waits until all that is on the stream is done; an error when a rank failed meanwhile. */
POLYPATH_API polypath_status polypath_uniconn_wait(polypath_uniconn_coordinator* coordinator);

/* Sends to `dest` of rank `to`, and after it `value` to the word `signal` there; both are named by
 * this rank's own addresses. Values of one word rise, and one rank writes it. */
POLYPATH_API polypath_status polypath_uniconn_post(polypath_uniconn_coordinator* coordinator,
                                                   const void* src, void* dest, size_t bytes,
                                                   uint64_t* signal, uint64_t value, int to,
                                                   polypath_uniconn_comm* comm);
/* What comes after it on the stream finds in `dest` what `from` posted with this value. */
POLYPATH_API polypath_status polypath_uniconn_acknowledge(polypath_uniconn_coordinator* coordinator,
                                                          void* dest, size_t bytes,
                                                          uint64_t* signal, uint64_t value,
                                                          int from, polypath_uniconn_comm* comm);

/* Collectives: all ranks of the communicator, in the same order. What others write to (`recv`, in
 * place what is sent, too) is of polypath_uniconn_alloc, at the same place on all ranks, and named
 * on all. `bytes` is of one rank's part; counts and displacements are of each rank, in bytes.
 *
 * In place, with each rank's own part where it is in the whole: `send` NULL in a gather, `recv`
 * NULL in a scatter. */
POLYPATH_API polypath_status polypath_uniconn_all_gather(polypath_uniconn_coordinator* coordinator,
                                                         const void* send, void* recv, size_t bytes,
                                                         polypath_uniconn_comm* comm);
POLYPATH_API polypath_status polypath_uniconn_all_gatherv(polypath_uniconn_coordinator* coordinator,
                                                          const void* send, void* recv,
                                                          const size_t* counts,
                                                          const size_t* displs,
                                                          polypath_uniconn_comm* comm);
POLYPATH_API polypath_status polypath_uniconn_all_to_all(polypath_uniconn_coordinator* coordinator,
                                                         const void* send, void* recv, size_t bytes,
                                                         polypath_uniconn_comm* comm);
POLYPATH_API polypath_status polypath_uniconn_all_to_allv(
    polypath_uniconn_coordinator* coordinator, const void* send, const size_t* send_counts,
    const size_t* send_displs, void* recv, const size_t* recv_counts, const size_t* recv_displs,
    polypath_uniconn_comm* comm);
POLYPATH_API polypath_status polypath_uniconn_broadcast(polypath_uniconn_coordinator* coordinator,
                                                        void* buffer, size_t bytes, int root,
                                                        polypath_uniconn_comm* comm);
POLYPATH_API polypath_status polypath_uniconn_gather(polypath_uniconn_coordinator* coordinator,
                                                     const void* send, void* recv, size_t bytes,
                                                     int root, polypath_uniconn_comm* comm);
POLYPATH_API polypath_status polypath_uniconn_gatherv(polypath_uniconn_coordinator* coordinator,
                                                      const void* send, void* recv,
                                                      const size_t* counts, const size_t* displs,
                                                      int root, polypath_uniconn_comm* comm);
POLYPATH_API polypath_status polypath_uniconn_scatter(polypath_uniconn_coordinator* coordinator,
                                                      const void* send, void* recv, size_t bytes,
                                                      int root, polypath_uniconn_comm* comm);
POLYPATH_API polypath_status polypath_uniconn_scatterv(polypath_uniconn_coordinator* coordinator,
                                                       const void* send, void* recv,
                                                       const size_t* counts, const size_t* displs,
                                                       int root, polypath_uniconn_comm* comm);

/* `type`: a polypath_data_type, or one of these. */
enum { POLYPATH_UNICONN_INT16 = 10, POLYPATH_UNICONN_UINT16 = 11 };
/* `op`: a polypath_reduce_op, or one of these; bitwise ones are of integers. */
enum {
  POLYPATH_UNICONN_LAND = 5,
  POLYPATH_UNICONN_LOR = 6,
  POLYPATH_UNICONN_LXOR = 7,
  POLYPATH_UNICONN_BAND = 8,
  POLYPATH_UNICONN_BOR = 9,
  POLYPATH_UNICONN_BXOR = 10
};
/* `count` elements of every rank, combined, to all. `recv` may be `send`. */
POLYPATH_API polypath_status polypath_uniconn_all_reduce(polypath_uniconn_coordinator* coordinator,
                                                         const void* send, void* recv, size_t count,
                                                         int type, int op,
                                                         polypath_uniconn_comm* comm);
/* Combined as above, to `root` alone. */
POLYPATH_API polypath_status polypath_uniconn_reduce(polypath_uniconn_coordinator* coordinator,
                                                     const void* send, void* recv, size_t count,
                                                     int type, int op, int root,
                                                     polypath_uniconn_comm* comm);

/* ---- Which backend is best here: what `polypath tune backend` measured ----------------------- */

/* By number. */
enum {
  POLYPATH_BACKEND_POLYPATH = 0,
  POLYPATH_BACKEND_GPUCCL = 1,
  POLYPATH_BACKEND_GPUSHMEM = 2,
  POLYPATH_BACKEND_MPI = 3,
  POLYPATH_BACKEND_COUNT = 4
};
/* What is measured, and routed by AnyBackend: "post", "allreduce", "reduce", "all_gather",
 * "all_to_all", "broadcast". */
enum {
  POLYPATH_COMM_POST = 0,
  POLYPATH_COMM_ALLREDUCE = 1,
  POLYPATH_COMM_REDUCE = 2,
  POLYPATH_COMM_ALL_GATHER = 3,
  POLYPATH_COMM_ALL_TO_ALL = 4,
  POLYPATH_COMM_BROADCAST = 5,
  POLYPATH_BACKEND_OP_COUNT = 6
};

/* An entry of the profile. */
typedef struct polypath_backend_entry {
  int op;
  int backend;                       /* the choice; -1: one that this library does not know */
  size_t bytes;                      /* of a message; of a collective, of a rank's larger buffer */
  double us[POLYPATH_BACKEND_COUNT]; /* of the slowest rank; negative: not measured */
  int edited;                        /* 1: by a user, in the profile */
} polypath_backend_entry;

/* The entries for ranks on these GPUs (as `context` numbers them), by operation, then by size;
 * `gpus` NULL: for any GPUs. The first `capacity` of them go to `rows` (NULL for none), and *count
 * is how many there are. */
POLYPATH_API polypath_status polypath_backend_entries(polypath_context* context, const int* gpus,
                                                      int ranks, polypath_backend_entry* rows,
                                                      size_t capacity, size_t* count);

/* What ranks measured in turns. */
typedef struct polypath_backend_samples {
  int op;
  const int* gpus; /* of each rank */
  int ranks;
  size_t bytes;
  const int* backends; /* in the order of preference */
  int backend_count;
  const double* us; /* of each turn, of each backend */
  int turns;
} polypath_backend_samples;

/* Chooses (the first, unless another one was faster in 8 of 9 turns and by 1 % at the median), and
 * keeps it in the profile in the place of what was known; an edited entry stays. The value is the
 * entry: one of "comm" of polypath_tuning_results(). */
POLYPATH_API polypath_status polypath_backend_save(polypath_context* context,
                                                   const polypath_backend_samples* measured,
                                                   char** json);

/* What AnyBackend would take for `op` (its name) of `bytes` on ranks on these GPUs (NULL: the first
 * `ranks`; 0: all), where polypath works; `with_mpi`: of a program with MPI, whose ranks are MPI's:
 * {"op", "ranks": class, "bytes", "backend", "reason",
 *  "entry": of the nearest size that was measured, as in polypath_tuning_results(), or null,
 *  "backends": [{"backend", "us": null where not measured, "serves": bool, "why": "" or why not}]}
 * Without an entry "backend" is what serves all that was not measured. POLYPATH_INVALID_ARGUMENT:
 * there is no such operation, or no such GPU. */
POLYPATH_API polypath_status polypath_plan_backend(polypath_context* context, const char* op,
                                                   size_t bytes, const int* gpus, int ranks,
                                                   int with_mpi, char** json);

#ifdef __cplusplus
}
#endif

#endif
