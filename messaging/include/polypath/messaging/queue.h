/* polypath: bounded queues that kernels push to and pop from (polypath/device/queue.cuh,
 * spsc_queue.cuh): where they lie, and which side gets which view of them.
 *
 * A handle holds one or several queues, numbered from 0. One side of each pushes, the other pops:
 * both on one GPU, on the GPUs of two ranks, or one of them a CPU. Between GPUs cells, head and
 * closed lie with the consumer, tail and credit with the producer: each side polls its own memory,
 * and what goes to the other is a store. All waits end as those of the communicator do, with an
 * abort or at the time limit; then polypath_comm_check() says at which queue, for which turn.
 *
 * What a push promises to its pop: the item, whole. push_release() and pop_acquire(), on a CPU
 * each push and pop: all that the pushing thread stored before, too.
 *
 * Destroy queues before their communicator. Calls that say "collective" are made by all ranks, as
 * in comm.h. Errors, units and strings: polypath.h.
 */
#ifndef POLYPATH_MESSAGING_QUEUE_H
#define POLYPATH_MESSAGING_QUEUE_H

#include "polypath/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One or several queues, as one rank sees them. Threads: calls that change it (destroy, and those
 * of a CPU's side of a pair) come from one thread at a time. */
typedef struct polypath_queue polypath_queue;

typedef enum polypath_queue_kind {
  POLYPATH_QUEUE_MPMC = 0, /* any number of groups push, any number pop: device::queue */
  POLYPATH_QUEUE_SPSC =
      1 /* one group pushes, one pops, no counter is shared: device::spsc_producer */
} polypath_queue_kind;

/* How an item lies in its cell; the last template argument of the device's classes. */
typedef enum polypath_queue_protocol {
  /* packets: 12 of each 16 bytes are data, and each says itself which lap it is of. */
  POLYPATH_PROTOCOL_LL = 0,
  /* line: 120 bytes of data and one flag, between GPUs, pushed by whole warps. PTX does not
   * promise that such a line arrives whole, so the path is proven first, once a process: millions
   * of lines are sent and looked at. */
  POLYPATH_PROTOCOL_LL128 = 1
} polypath_queue_protocol;

typedef enum polypath_queue_side {
  POLYPATH_QUEUE_PRODUCER = 0, /* pushes */
  POLYPATH_QUEUE_CONSUMER = 1  /* pops */
} polypath_queue_side;

/* The same on all ranks. Begin with zeros: 0 is the default. */
typedef struct polypath_queue_options {
  size_t item_bytes;    /* sizeof of the kernels' T: 1 to 96; line: 1 to 120. No default */
  uint32_t capacity;    /* items, a power of two; 0: 16384 */
  uint32_t segment;     /* items given back together, and the most of one call of a group:
                                   a power of two, a quarter of the capacity at most; 0: a 64th of
                                   it, but 256 where that is no more than a quarter */
  uint32_t kind;        /* a polypath_queue_kind; 0: queue */
  uint32_t layout;      /* a polypath_queue_protocol; 0: LL */
  uint32_t timeout_ms;  /* of one wait; 0: that of the communicator, when a view is made */
  uint32_t reserved[5]; /* 0 */
} polypath_queue_options;

/* `count` queues in the memory of this rank's GPU, which pushes and pops. Not collective.
 * POLYPATH_INVALID_ARGUMENT, for all calls that create: what is wrong with the options. */
POLYPATH_API polypath_status polypath_queue_create(polypath_comm* comm,
                                                   const polypath_queue_options* options, int count,
                                                   polypath_queue** queue);

/* Collective: `count` queues from rank `from` to rank `to`, which may be the same. Each rank gets a
 * handle; views are for these two. POLYPATH_NOT_SUPPORTED, on all ranks: layout LL128, and lines
 * come torn on this path, or it could not be proven. POLYPATH_COMMUNICATOR_ERROR: memory is short
 * on a rank, or options differ. */
POLYPATH_API polypath_status polypath_queue_connect(polypath_comm* comm,
                                                    const polypath_queue_options* options, int from,
                                                    int to, int count, polypath_queue** queue);
/* Collective: a queue from each rank to each, itself too. On each rank view number r is the queue
 * to rank r for POLYPATH_QUEUE_PRODUCER, and that from rank r for POLYPATH_QUEUE_CONSUMER. */
POLYPATH_API polypath_status polypath_queue_connect_mesh(polypath_comm* comm,
                                                         const polypath_queue_options* options,
                                                         polypath_queue** queue);
/* The same for all `ranks` ranks of a communicator that this process has; `queues` has a place for
 * each. */
POLYPATH_API polypath_status polypath_queue_connect_all(polypath_comm* const* comms, int ranks,
                                                        const polypath_queue_options* options,
                                                        int from, int to, int count,
                                                        polypath_queue** queues);
POLYPATH_API polypath_status polypath_queue_connect_mesh_all(polypath_comm* const* comms, int ranks,
                                                             const polypath_queue_options* options,
                                                             polypath_queue** queues);

/* `count` queues between this rank's GPU and CPU threads of this process; `host` is the CPU's
 * polypath_queue_side. They lie in pinned host memory; layout LL. Not collective.
 * POLYPATH_NOT_SUPPORTED: this CPU does not move 16 bytes at once (x86-64 with AVX and AArch64
 * with LSE2 do). */
POLYPATH_API polypath_status polypath_queue_create_host(polypath_comm* comm,
                                                        const polypath_queue_options* options,
                                                        int host, int count,
                                                        polypath_queue** queue);

/* Work of all ranks that uses it must have completed. Collective where the creation was. NULL is
 * not allowed. After every status but POLYPATH_INVALID_ARGUMENT the handle is gone. */
POLYPATH_API polypath_status polypath_queue_destroy(polypath_queue* queue);
POLYPATH_API polypath_status polypath_queue_destroy_all(polypath_queue* const* queues, int ranks);

/* How many queues it holds for this rank; -1 for NULL. */
POLYPATH_API int polypath_queue_count(const polypath_queue* queue);

/* The size of its views: sizeof of a polypath::device::queue_view or spsc_view; 0 for NULL. */
POLYPATH_API size_t polypath_queue_view_bytes(const polypath_queue* queue);

/* What `side` (a polypath_queue_side) of queue `index` needs that this rank has: a
 * polypath::device::queue_view or, of pairs, spsc_view (polypath/device/queue_view.hpp,
 * spsc_view.hpp), `bytes` its size. The CPU's side: for host_queue or host_pair_* of
 * polypath/messaging/host_queue.hpp, host_spsc_queue.hpp. What it points to is the handle's.
 * POLYPATH_INVALID_ARGUMENT: this rank is not on that side; another size, as of the headers of
 * another version. */
POLYPATH_API polypath_status polypath_queue_view(const polypath_queue* queue, int index, int side,
                                                 void* view, size_t bytes);

/* How they went, as this rank can read it, next to running kernels too: {"queues": [{"number",
 * "kind", "layout", "item_bytes", "capacity", "segment", "from", "to", "pushed", "popped",
 * "generations", "in_flight", "timed_out_wait"}]}. Items; what a kernel has under way is counted
 * late, and pairs count when their kernels leave. A push that waits for room, or timed out, counts
 * as far as there was room, at least for its turn. "from" and "to": ranks, or "host".
 * "timed_out_wait": what a kernel of the program, or a call below, waited for past the time limit,
 * or "" (also where an abort ended the wait). For polypath_free_string(). */
POLYPATH_API polypath_status polypath_queue_report(polypath_queue* queue, char** json);

/* ---- On the CPU -------------------------------------------------------------------------------
 * For queues by polypath_queue_create_host. `items` are `count` times item_bytes, one after the
 * other. Any number of threads may call these for queues, one at a time for pairs; a pair is used
 * by these calls or by host_spsc_queue.hpp, not by both.
 * POLYPATH_COMMUNICATOR_ERROR: the communicator is unusable; a wait past the time limit makes it
 * so. As soon as this process knows, pushes and close do nothing, also where there is room; pops
 * first give what has come. */

/* Waits while there is no room. A wait that timed out may have pushed the first of `items`. */
POLYPATH_API polypath_status polypath_queue_push(polypath_queue* queue, int index,
                                                 const void* items, size_t count);
/* Never waits. *pushed is `count`, or 0 when there is no room for all. At most a segment at once:
 * POLYPATH_INVALID_ARGUMENT for more. */
POLYPATH_API polypath_status polypath_queue_try_push(polypath_queue* queue, int index,
                                                     const void* items, size_t count,
                                                     size_t* pushed);
/* Waits until `count` items have come, or the queue is closed: *popped are there then, and where
 * the wait timed out, too. */
POLYPATH_API polypath_status polypath_queue_pop(polypath_queue* queue, int index, void* items,
                                                size_t count, size_t* popped);
/* Never waits: takes what is there, `count` items at most, and no more than a segment. Places
 * after *popped may be overwritten. *closed (may be NULL): none comes any more.
 * POLYPATH_COMMUNICATOR_ERROR: there was nothing; *popped is 0. */
POLYPATH_API polypath_status polypath_queue_try_pop(polypath_queue* queue, int index, void* items,
                                                    size_t count, size_t* popped, int* closed);
/* No push comes any more: pops that have nothing left end. Not of pairs. */
POLYPATH_API polypath_status polypath_queue_close(polypath_queue* queue, int index);

#ifdef __cplusplus
}
#endif

#endif
