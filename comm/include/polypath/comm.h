/* polypath: ranks that communicate, one GPU each. Communicators, symmetric memory, signals.
 *
 * Ranks are processes of one machine, threads of one process, or both; for collectives they may be
 * on several machines (polypath_network). All ranks create a
 * communicator together; from then on a rank that dies, times out or does not come ends the
 * others' waits with an error, within the time limit: POLYPATH_COMMUNICATOR_ERROR, and the
 * communicator stays unusable.
 *
 * Collective calls are made by all ranks, in the same order: create, split, exchange, alloc, free.
 * They wait for each other on the host, so each rank needs its own thread; what ends in _all makes
 * the call for several ranks of one process by itself. Calls on a stream are asynchronous.
 *
 * Threads: calls for one rank come from one thread at a time, but for abort and check, which any
 * thread may make at any time. Errors, units and strings: polypath.h.
 */
#ifndef POLYPATH_COMM_H
#define POLYPATH_COMM_H

#include "polypath/polypath.h"
#include "polypath/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Creation ---------------------------------------------------------------------------------
 */

/* One rank of a communicator. */
typedef struct polypath_comm polypath_comm;

/* An all-gather, by which ranks find each other: `local` of every rank, `bytes` long on all, in
 * rank order, into `all`. 0: it succeeded. It must fail when a rank does not come: without a
 * communicator polypath cannot detect that. Called a few times, by the thread that creates. */
typedef int (*polypath_all_gather_fn)(const void* local, void* all, size_t bytes, void* user);

/* One rank of those that meet: an exchange that is ready-made, and can be used by itself. */
typedef struct polypath_bootstrap polypath_bootstrap;

/* The ranks that torchrun started, or another launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and
 * MASTER_PORT, over TCP; returns when all have come. `port` 0: after MASTER_PORT. Without any of
 * them: a meeting of this process alone. `timeout_ms`: how long a rank waits for another one.
 * POLYPATH_COMMUNICATOR_ERROR: a rank did not come. POLYPATH_INVALID_ARGUMENT: a variable. */
POLYPATH_API polypath_status polypath_bootstrap_from_environment(uint32_t port, uint32_t timeout_ms,
                                                                 polypath_bootstrap** meeting);
/* `size` ranks that are threads of this process; `meetings` has a place for each. */
POLYPATH_API polypath_status polypath_bootstrap_threads(int size, uint32_t timeout_ms,
                                                        polypath_bootstrap** meetings);
/* A polypath_all_gather_fn; `meeting` is its `user`. The message of a failure:
 * polypath_last_error(). */
POLYPATH_API int polypath_bootstrap_all_gather(const void* local, void* all, size_t bytes,
                                               void* meeting);
/* -1 for NULL. */
POLYPATH_API int polypath_bootstrap_rank(const polypath_bootstrap* meeting);
POLYPATH_API int polypath_bootstrap_size(const polypath_bootstrap* meeting);
/* NULL is allowed. */
POLYPATH_API void polypath_bootstrap_destroy(polypath_bootstrap* meeting);

/* What carries the bytes of collectives between nodes: messages in host memory, as MPI has them
 * (polypath/comm_mpi.h has it ready). Functions give 0 when they succeeded; what fails makes the
 * communicator unusable.
 *
 * `begin` is called once on all ranks, in their creation, when they are on several nodes; the
 * others after that. send, receive and test are called by one thread at a time: with
 * `progress_in_caller` that which is in polypath_comm_synchronize, and no other, else one of
 * polypath's own. `end` is called in polypath_comm_destroy, unless messages are under way then. */
typedef struct polypath_network {
  uint32_t progress_in_caller;
  uint32_t reserved; /* 0 */
  void* user;        /* for each function; it and they must outlive the communicator */
  int (*begin)(void* user);
  /* Begin to send `count` bytes to rank `to`, or to receive as many from rank `from`: two ranks'
   * messages of one tag (0 to 32767) belong together. `request` is theirs until it is done. */
  int (*send)(void* user, int to, int tag, const void* bytes, size_t count, uint64_t* request);
  int (*receive)(void* user, int from, int tag, void* bytes, size_t count, uint64_t* request);
  /* Whether it is done, without waiting. */
  int (*test)(void* user, uint64_t* request, int* done);
  void (*end)(void* user);
} polypath_network;

/* NCCL, found at run time: on device memory, on streams. Not for other uses than as an option. */
POLYPATH_API const polypath_network* polypath_network_nccl(void);

/* 0: what the settings of the context say. */
typedef struct polypath_comm_options {
  uint32_t timeout_ms; /* how long a rank waits for another one; rank 0's counts */
  uint32_t port;       /* for create_from_environment: where rank 0 listens */
  /* Ranks may be on several nodes, equally many on each; NULL: they are of one. The same on all
   * ranks. Which node a rank is of: the setting comm_node. */
  const polypath_network* network;
  /* For collectives on this rank's GPU: thread blocks of a kernel, at most (0: 128), and
   * multiprocessors that are left to kernels of other libraries that wait for other GPUs as well,
   * no more than half of all. */
  uint32_t max_blocks;
  uint32_t reserved_sms;
  /* 0: a collective whose buffers are refused on one rank alone aborts the communicator, since the
   * others wait for it. Not 0: it does not, and the caller makes the same call again with other
   * buffers, before any other one. */
  uint64_t retries_buffers;
  /* polypath_sum_order, the same on all ranks; the communicator is not created where they differ.
   */
  uint64_t sum_order;
  uint64_t reserved[2]; /* 0 */
} polypath_comm_options;

/* Creates the communicator of `size` ranks; this one is `rank`, and works on GPU `gpu` as `context`
 * numbers them. Makes the GPU's primary context if need be. `options` may be NULL; `context` must
 * outlive the communicator. Large puts go over all paths, as transfers of the context.
 * Collective. POLYPATH_COMMUNICATOR_ERROR: on all ranks alike, with one reason: two ranks on one
 * GPU, GPUs that one process does not see, another user or machine, another version.
 *
 * Where one GPU cannot address another one's memory (no peer access), all ranks meet in pinned host
 * memory that they share: signals, barriers and collectives are as elsewhere, over PCI Express.
 *
 * One of several nodes (options->network) serves collectives, prepare, retire, synchronize, check,
 * abort, destroy, abandon, rank, size, nodes, gpu and report; what else there is gives
 * POLYPATH_NOT_SUPPORTED. */
POLYPATH_API polypath_status polypath_comm_create(polypath_context* context, int rank, int size,
                                                  int gpu, polypath_all_gather_fn exchange,
                                                  void* user, const polypath_comm_options* options,
                                                  polypath_comm** comm);

/* All ranks are of this process: rank r works on gpus[r]; `comms` has a place for each. NULL: GPU r
 * for rank r. On an error none is made. */
POLYPATH_API polypath_status polypath_comm_create_all(polypath_context* context, const int* gpus,
                                                      int size,
                                                      const polypath_comm_options* options,
                                                      polypath_comm** comms);

/* The ranks that torchrun started, or another launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and
 * MASTER_PORT: they meet over TCP. `gpu` -1: LOCAL_RANK, or 0 where only one GPU is visible. */
POLYPATH_API polypath_status polypath_comm_create_from_environment(
    polypath_context* context, int gpu, const polypath_comm_options* options, polypath_comm** comm);

/* Collective: a communicator for the ranks of each color, ordered by key, then by rank, with the
 * options of `comm`. A negative color: none, and *part is NULL. */
POLYPATH_API polypath_status polypath_comm_split(polypath_comm* comm, int color, int key,
                                                 polypath_comm** part);

/* Not collective; NULL is allowed. All work that uses it must have completed: with a stream that
 * still waits for a signal, or a collective under way, POLYPATH_INVALID_ARGUMENT, and nothing is
 * destroyed. (A launch of a graph is not known.) With the last rank
 * of this process it waits until other processes' ranks are destroyed, too, no longer than the time
 * limit, and frees what is left of symmetric memory, whose handles are gone then; what other
 * processes' ranks may still reach is freed later, once they are destroyed. After an abort it waits
 * for calls of this rank, for the time limit; what a call uses that is held for longer is kept. */
POLYPATH_API polypath_status polypath_comm_destroy(polypath_comm* comm);

/* Not collective; NULL is allowed. As destroy, but does not wait, and frees no memory of the
 * GPU. Calls of other ranks that this one has taken part in are completed; their next call fails.
 */
POLYPATH_API polypath_status polypath_comm_abandon(polypath_comm* comm);

/* Before GPU `gpu`, as the driver numbers them, is reset (cudaDeviceReset,
 * cuDevicePrimaryCtxReset): the communicators that this process has there are told, and what is
 * freed in the background stops. Waits for no other rank, and a second at most. Their handles are
 * destroyed as others are. Under `polypath run` it is called for the program. Any thread. */
POLYPATH_API void polypath_gpu_reset(int gpu);

/* Makes the communicator unusable for all ranks: every wait, on host or stream, ends. The first
 * reason is kept; NULL is allowed. Of several nodes it reaches the ranks of this one: those of
 * others find out by their time limit, in the next call that needs this node. */
POLYPATH_API polypath_status polypath_comm_abort(polypath_comm* comm, const char* reason);

/* POLYPATH_COMMUNICATOR_ERROR, with the reason, once it is unusable. What streams wrote after their
 * waits were ended is undefined, so check after synchronising. Keep the buffers of collectives that
 * were under way until those of all ranks have ended: other ranks may still store results there. */
POLYPATH_API polypath_status polypath_comm_check(polypath_comm* comm);

/* Waits until all that is on `stream`, one of this rank's GPU, is done; then as
 * polypath_comm_check. Carries messages between nodes meanwhile, where no other thread does. */
POLYPATH_API polypath_status polypath_comm_synchronize(polypath_comm* comm, void* stream);

/* -1 for NULL. */
POLYPATH_API int polypath_comm_rank(const polypath_comm* comm);
POLYPATH_API int polypath_comm_size(const polypath_comm* comm);
/* How many nodes its ranks are on; -1 for NULL. */
POLYPATH_API int polypath_comm_node_count(const polypath_comm* comm);
/* The GPU of `rank`, as this process numbers them; -1 for a rank that there is not, or that is on
 * another node. */
POLYPATH_API int polypath_comm_gpu(const polypath_comm* comm, int rank);

/* Collective: `local` of every rank, `bytes` each, in rank order, into `all`, on the host. */
POLYPATH_API polypath_status polypath_comm_host_all_gather(polypath_comm* comm, const void* local,
                                                           void* all, size_t bytes);

/* ---- Symmetric memory -------------------------------------------------------------------------
 */

/* Memory that all ranks allocated together, as one rank sees it. */
typedef struct polypath_symmetric polypath_symmetric;

/* Collective: `bytes`, the same on all ranks, of GPU memory on each, filled with zeros. When memory
 * is short on one rank all get POLYPATH_COMMUNICATOR_ERROR, and the communicator stays usable.
 *
 * Without peer access memory of up to 64 KiB is pinned host memory, for signals and what little is
 * with them. More is GPU memory, into which ranks of one process put by copies, and which holds no
 * signals; with ranks in several processes it is refused with POLYPATH_NOT_SUPPORTED. */
POLYPATH_API polypath_status polypath_comm_alloc(polypath_comm* comm, size_t bytes,
                                                 polypath_symmetric** memory);
/* The same for all `count` ranks of a communicator that this process has; `memories` has a place
 * for each. */
POLYPATH_API polypath_status polypath_comm_alloc_all(polypath_comm* const* comms, int count,
                                                     size_t bytes, polypath_symmetric** memories);

/* Collective. Work of all ranks that uses it must have completed. NULL is not allowed. After
 * every status but POLYPATH_INVALID_ARGUMENT the handle is gone. */
POLYPATH_API polypath_status polypath_comm_free(polypath_comm* comm, polypath_symmetric* memory);
/* The same for all ranks of this process. */
POLYPATH_API polypath_status polypath_comm_free_all(polypath_comm* const* comms, int count,
                                                    polypath_symmetric* const* memories);

/* Where the memory of `rank` is, for work of this rank's GPU: an address of this process. NULL for
 * a rank that there is not. Without peer access that of another rank's GPU memory is for copies,
 * not for kernels. Valid until the memory is freed, or the communicator destroyed. */
POLYPATH_API void* polypath_symmetric_address(const polypath_symmetric* memory, int rank);
POLYPATH_API size_t polypath_symmetric_bytes(const polypath_symmetric* memory);

/* ---- On a stream ------------------------------------------------------------------------------
 * `stream` is a CUstream of the primary context of this rank's GPU; NULL is its legacy default
 * stream. Small puts from memory of this rank's GPU, of at most `put_kernel_size` bytes
 * (POLYPATH_PUT_KERNEL_SIZE, 4M) and 256 KiB over other links than an NVSwitch's, are made by a
 * kernel of a few blocks, which needs room on the GPU: next to kernels of the program that fill it
 * until a put has come, set it to 0. A stream
 * waits in a kernel of one block, and with more work after it holds one of the
 * GPU's hardware queues (CUDA_DEVICE_MAX_CONNECTIONS, 8): others may stand still after it. One
 * that waits past the time limit makes the communicator unusable. */

/* A 64-bit word at `offset`, a multiple of 8, of symmetric memory, and a value for it. */
typedef struct polypath_signal {
  const polypath_symmetric* memory;
  size_t offset;
  uint64_t value;
} polypath_signal;

/* Copies `bytes` from `src`, any memory that this rank's GPU reaches, to `offset` of the memory of
 * rank `to`. */
POLYPATH_API polypath_status polypath_comm_put(polypath_comm* comm, int to,
                                               const polypath_symmetric* memory, size_t offset,
                                               const void* src, size_t bytes, void* stream);
/* As polypath_comm_put(); then sets the word of rank `to` to its value: a rank that sees the value
 * sees the bytes. */
POLYPATH_API polypath_status polypath_comm_put_signal(polypath_comm* comm, int to,
                                                      const polypath_symmetric* memory,
                                                      size_t offset, const void* src, size_t bytes,
                                                      const polypath_signal* signal, void* stream);
/* One put of a group: the fields are the arguments above. `signal` may be NULL. */
typedef struct polypath_put {
  int to;
  const polypath_symmetric* memory;
  size_t offset;
  const void* src;
  size_t bytes;
  const polypath_signal* signal;
} polypath_put;
/* Puts that are planned together and run at once, after all that is on the stream, which goes on
 * after all of them: those to one rank in this order, those to several ranks without one.
 * Arguments of all are checked before any is issued; the message names the index of the put. */
POLYPATH_API polypath_status polypath_comm_put_group(polypath_comm* comm, const polypath_put* puts,
                                                     size_t count, void* stream);
/* polypath_comm_put_group(), and after all puts the stream waits for the words of this rank that
 * `awaited` names, as polypath_comm_wait_signal() for each: where all puts are small, by one
 * kernel. */
POLYPATH_API polypath_status polypath_comm_put_and_wait(polypath_comm* comm,
                                                        const polypath_put* puts, size_t count,
                                                        const polypath_signal* awaited,
                                                        size_t awaited_count, void* stream);
/* Gives the word of rank `to` its value, after all that is on the stream before. */
POLYPATH_API polypath_status polypath_comm_signal(polypath_comm* comm, int to,
                                                  const polypath_signal* signal, void* stream);
/* The stream waits until the word of this rank is at the value, or past it by less than 2^63. */
POLYPATH_API polypath_status polypath_comm_wait_signal(polypath_comm* comm,
                                                       const polypath_signal* signal, void* stream);
/* The stream waits until the streams of all ranks have come to their call. Each rank calls equally
 * often; a launch of a graph with captured barriers counts as that many calls. Barriers of a
 * communicator on several streams, or in graphs, are ordered by the caller. */
POLYPATH_API polypath_status polypath_comm_barrier(polypath_comm* comm, void* stream);

/* What kernels of the program wait with, as those of the communicator do
 * (polypath/device/wait.cuh): until an abort, and no longer than the present time limit; one that
 * times out aborts the communicator. `wait_ctx` is a polypath::device::wait_context
 * (polypath/device/wait_context.hpp), `bytes` its size. The communicator owns what it points to.
 * POLYPATH_INVALID_ARGUMENT: another size, as of the headers of another version. */
POLYPATH_API polypath_status polypath_comm_wait_context(polypath_comm* comm, void* wait_ctx,
                                                        size_t bytes);

/* ---- Collectives ------------------------------------------------------------------------------
 * On a stream, as above. All ranks make the same calls in the same order; those of one communicator
 * run one after another, also on different streams. Counts are in elements. Buffers are memory
 * of this rank's GPU from any allocator, aligned to their elements, and do not overlap, or are in
 * place: the same for allreduce, broadcast and reduce; `recv` is this rank's part of
 * `send` for reduce_scatter, and `send` this rank's part of `recv` for all_gather. NULL where this
 * rank gives or gets nothing, and for a count of 0.
 *
 * Elements are combined in rank order, one after another, half types in float32 with one rounding
 * at the end: results are the same bits on all ranks, in all runs, for any size, position,
 * algorithm and number of blocks, and equal to the sequential sum. Integers wrap; the average of
 * integers is their sum divided towards zero. Of several nodes: in rank order in each node, and
 * then the nodes in the order of their first ranks, half types rounded once in each and once at the
 * end; bits are equal on all ranks and in all runs. Their calls cannot be captured, and average 255
 * ranks at most.
 *
 * With the option sum_order POLYPATH_SUM_ORDER_TREE floats are combined as a balanced binary tree
 * over the ranks, (r0 + r1) + (r2 + r3), each of whose nodes is rounded to the elements' type. The
 * left half of n ranks are the first 2^k of them, the largest power of 2 below n. So a rank that
 * gives the sum of two leaves gives what the node of the two is: the same leaves over 1, 2, 4 or 8
 * ranks have the same bits. An average is the tree's sum, divided and rounded once more. Of several
 * nodes it takes a power of 2 of ranks on each, one after another, and 8 nodes at most; else calls
 * that combine floats give POLYPATH_NOT_SUPPORTED.
 *
 * POLYPATH_INVALID_ARGUMENT: nothing was issued; the message names the rank and the argument.
 * What ranks do not give alike (type, count, operator, root) is found with the setting `check`
 * (POLYPATH_CHECK=1), in which each call waits on the host for all ranks; without it the result is
 * undefined, or the time limit ends the wait. */

/* Not collective: loads the kernels of communicators, of collectives and of batches of blocks for
 * GPU `gpu`, once; later communicators, collectives and batches on it load none. The driver loads
 * kernels only when those that run on the GPU have ended, and lets no other thread of the process
 * into the driver meanwhile: to be called before any run there that wait for this process. They
 * stay until the GPU's context goes. POLYPATH_NOT_SUPPORTED: there are none for this GPU. */
POLYPATH_API polypath_status polypath_load_kernels(polypath_context* context, int gpu);

/* Collective: loads the kernels, and takes scratch on each GPU, or a little of it where the setting
 * `scratch` of all ranks says so. The first collective does it otherwise: it then waits on the host
 * for all ranks, and for seconds until no stream of theirs waits for a signal any more, since the
 * driver may load kernels only then; in stream capture it is refused. To be called before streams
 * wait for what is signalled only after a collective.
 * POLYPATH_NOT_SUPPORTED: on all ranks alike; no kernels for a GPU, or too many ranks. */
POLYPATH_API polypath_status polypath_comm_prepare(polypath_comm* comm);
/* The same for all ranks of this process. */
POLYPATH_API polypath_status polypath_comm_prepare_all(polypath_comm* const* comms, int count);

/* Limits the thread blocks that kernels of later collectives take on a GPU, so that the
 * program's own kernels run next to them; 0: as many as are fastest, which is up to seven eighths
 * of the GPU's multiprocessors, one a block. All ranks give the same number at the same place among
 * their calls. POLYPATH_INVALID_ARGUMENT: it is negative. Collective where nothing prepared the
 * collectives before. */
POLYPATH_API polypath_status polypath_comm_set_max_blocks(polypath_comm* comm, int blocks);

/* Not collective: this rank makes no collective call any more, and its share of the GPU's
 * multiprocessors is free for other communicators, before it is destroyed.
 * POLYPATH_INVALID_ARGUMENT: a call is under way, and nothing is changed. */
POLYPATH_API polypath_status polypath_comm_release_sms(polypath_comm* comm);

/* `count` elements of every rank, combined, to all. */
POLYPATH_API polypath_status polypath_all_reduce(polypath_comm* comm, const void* send, void* recv,
                                                 size_t count, polypath_data_type type,
                                                 polypath_reduce_op op, void* stream);
/* `count` elements to each rank: rank r gets the r-th part of what is combined. `send` has as many
 * parts as there are ranks. */
POLYPATH_API polypath_status polypath_reduce_scatter(polypath_comm* comm, const void* send,
                                                     void* recv, size_t count,
                                                     polypath_data_type type, polypath_reduce_op op,
                                                     void* stream);
/* As polypath_reduce_scatter(), with parts of different lengths: `counts[r]` elements to rank r,
 * which may be none. `send` has the parts of all ranks one after another. `counts` has as many
 * entries as there are ranks, is the same on all, and is read before the call returns. The first
 * call of this kind, or of polypath_all_gatherv(), waits on the host for all ranks and loads
 * kernels, as the first collective does; with counts of 0 it does nothing else. Fastest where parts
 * begin at multiples of 16 bytes. POLYPATH_NOT_SUPPORTED: ranks of several nodes. */
POLYPATH_API polypath_status polypath_reduce_scatterv(polypath_comm* comm, const void* send,
                                                      void* recv, const size_t* counts,
                                                      polypath_data_type type,
                                                      polypath_reduce_op op, void* stream);
/* `count` elements of every rank, in rank order, to all. */
POLYPATH_API polypath_status polypath_all_gather(polypath_comm* comm, const void* send, void* recv,
                                                 size_t count, polypath_data_type type,
                                                 void* stream);
/* As polypath_all_gather(), with parts of different lengths: `counts[r]` elements of rank r, one
 * rank after another in `recv`. `counts`, the first call, and ranks of several nodes: as
 * polypath_reduce_scatterv(). */
POLYPATH_API polypath_status polypath_all_gatherv(polypath_comm* comm, const void* send, void* recv,
                                                  const size_t* counts, polypath_data_type type,
                                                  void* stream);
/* `count` elements of rank `root` to all. */
POLYPATH_API polypath_status polypath_broadcast(polypath_comm* comm, const void* send, void* recv,
                                                size_t count, polypath_data_type type, int root,
                                                void* stream);
/* `count` elements of every rank, combined, to rank `root`. */
POLYPATH_API polypath_status polypath_reduce(polypath_comm* comm, const void* send, void* recv,
                                             size_t count, polypath_data_type type,
                                             polypath_reduce_op op, int root, void* stream);
/* `count` elements from each rank to each: part r of `send` goes to rank r, and what rank r sent is
 * part r of `recv`. Not in place. */
POLYPATH_API polypath_status polypath_all_to_all(polypath_comm* comm, const void* send, void* recv,
                                                 size_t count, polypath_data_type type,
                                                 void* stream);

/* Rows that are summed over all ranks and then normalised (RMSNorm). Addresses are memory of this
 * rank's GPU, aligned to 16 bytes; rows follow one another. */
typedef struct polypath_norm {
  size_t rows;
  size_t hidden;           /* elements of a row: a multiple of 8, up to 49152 */
  polypath_data_type type; /* POLYPATH_FLOAT16 or POLYPATH_BFLOAT16 */
  float epsilon;
  const void* residual; /* null: nothing is added */
  void* residual_out;   /* may be `residual` */
  const void* weight;   /* a row */
  const float* scale;   /* null: `output` has elements of `type`; else FP8 (e4m3), a byte each */
} polypath_norm;

/* In one fixed order of sums, on each rank:
 *   x            = the sum of `input` over all ranks, as polypath_all_reduce gives it
 *   residual_out = r = x + residual, in float32, rounded to the type
 *   output       = r * (1 / sqrt(mean(r^2) + epsilon)) * weight, in float32, rounded to the type;
 *                  with `scale` then times (1 / *scale), saturated at 448, as FP8
 * A row has the same bits with any number of other rows, on all ranks and in all runs
 * (docs/collectives.md has the order). `output` may be `input`; else what is written overlaps
 * nothing. With `scale` the input may be overwritten. All ranks give the same numbers, and all or
 * none of them a residual and a scale; residual, weight and scale hold the same values on all.
 * Few rows are one kernel; more are an allreduce and a kernel that normalises, and so are those of
 * ranks on several nodes, whose order of sums is that of the allreduce across nodes. Order, capture
 * and errors as of the other collectives. */
POLYPATH_API polypath_status polypath_all_reduce_norm(polypath_comm* comm, void* input,
                                                      void* output, const polypath_norm* norm,
                                                      void* stream);

/* The source of a spread is host memory that all ranks have. */
#define POLYPATH_SPREAD_SHARED (-1)

/* `bytes` of one source to `recv`, memory of this rank's GPU, on all ranks. With `root`
 * POLYPATH_SPREAD_SHARED `src` is, on each rank, where it has the same bytes of host memory: of one
 * process, or a mapping that each process has registered (cuMemHostRegister); pageable memory, a
 * mapped file for one, is read by CPU threads. Each rank's GPU fetches a slice over its own link,
 * and gets the others' from their GPUs. Small ones are a copy of all bytes on each rank, which
 * waits for no other rank. With a rank as `root` it is a broadcast whose `src`, of that rank alone,
 * may be host memory as well. `src` may be written again when the streams of all ranks have come
 * past it. Collective; order, capture and errors as of the other collectives.
 * POLYPATH_NOT_SUPPORTED: ranks of several nodes. */
POLYPATH_API polypath_status polypath_comm_spread(polypath_comm* comm, const void* src, void* recv,
                                                  size_t bytes, int root, void* stream);

/* Not collective. How this rank's collectives and puts went, zeros before the first: {"cells",
 * "lines", "channels", "copies", ...: calls, "uneven": how many of them had uneven parts,
 * "fewer_blocks": how many had fewer blocks than wanted, which other communicators had,
 * "direct": how many of "channels" or "mixed" had results that went straight into recv,
 * "by_first_scratch": how many ran, slower, over what was taken first (the setting `scratch`),
 * "sum_order": "rank" or "tree", "scratch_bytes", "puts": {"kernel", "copies"}, "spreads":
 * {"calls", "native", "pieces"}}, whose pieces are collectives of their own, "norms": {"fused",
 * "apart"}}, of which those apart have an allreduce that counts as well; of several nodes also
 * {"nodes": {"network", "calls", "chunks", "sent_bytes"}}, and the others count what these calls
 * are made of inside the node. For polypath_free_string(). */
POLYPATH_API polypath_status polypath_comm_report(polypath_comm* comm, char** json);

#ifdef __cplusplus
}
#endif

#endif
