/* polypath: matching of messages and receives, on a GPU in batches, or on the host.
 *
 * Each message, in their order, takes the first receive, in theirs, that accepts its tag, source
 * and communicator and that no earlier message has taken, as MPI says. The result does not depend
 * on how messages and receives came in between each other, nor on how they are cut into batches.
 *
 * Threads: calls for one matcher come from one thread at a time. Errors, units and strings:
 * polypath.h. Kernels have the same by themselves: polypath/device/matcher_mpi.cuh.
 */
#ifndef POLYPATH_MESSAGING_MATCHING_H
#define POLYPATH_MESSAGING_MATCHING_H

#include "polypath/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For receives: any tag, or any source. */
#define POLYPATH_ANY_TAG 0xFFFFFFFFu
#define POLYPATH_ANY_SOURCE 0xFFFFu
/* The index of no message. */
#define POLYPATH_NO_MATCH 0xFFFFFFFFu

/* What a message is, and what a receive asks for: 8 bytes, aligned to 8. Tags 0 to 2^31 - 1,
 * sources 0 to 65534, communicators any; receives may have wildcards of tag and source. */
typedef struct polypath_envelope {
  uint32_t tag;
  uint16_t source;
  uint16_t communicator;
} polypath_envelope;

/* Which pairs a matcher makes. */
typedef enum polypath_match_order {
  POLYPATH_ORDER_MPI = 0,           /* in the orders of messages and receives; all wildcards */
  POLYPATH_ORDER_NO_ANY_SOURCE = 1, /* the same; no receive from any source */
  POLYPATH_ORDER_UNORDERED = 2,     /* in any order; no wildcards */
  /* As UNORDERED, faster: no two messages are alike, and no two receives. */
  POLYPATH_ORDER_UNORDERED_UNIQUE = 3
} polypath_match_order;

typedef enum polypath_match_status {
  POLYPATH_MATCH_DONE = 0,
  POLYPATH_MATCH_FULL = 1,              /* with what was left over, more than the capacity */
  POLYPATH_MATCH_MESSAGE_TAG = 2,       /* out of range */
  POLYPATH_MATCH_MESSAGE_SOURCE = 3,    /* out of range */
  POLYPATH_MATCH_RECEIVE_TAG = 4,       /* out of range */
  POLYPATH_MATCH_WILDCARD = 5,          /* that the order does not know */
  POLYPATH_MATCH_DUPLICATE_MESSAGE = 6, /* two are alike, of POLYPATH_ORDER_UNORDERED_UNIQUE */
  POLYPATH_MATCH_DUPLICATE_RECEIVE = 7  /* two are alike, as above */
} polypath_match_status;

/* What one batch came to. Unless it is done nothing was matched, and what was left over before is
 * as it was. */
typedef struct polypath_match_result {
  uint32_t status;  /* polypath_match_status */
  uint32_t index;   /* one of the messages or receives that the status is about; else 0 */
  uint32_t matches; /* pairs */
  uint32_t unmatched_messages; /* without a receive */
  uint32_t unmatched_receives; /* without a message */
  uint32_t reserved;
} polypath_match_result;

/* Numbers count messages and receives of polypath_match_incremental from 0. */
typedef struct polypath_match_pair {
  uint64_t receive;
  uint64_t message;
} polypath_match_pair;

typedef struct polypath_matcher polypath_matcher;

/* `capacity`: the most messages of one batch, and the most receives, with what is left over from
 * earlier ones: 1 to 2^20, without order to 2^24. Of the GPU's memory it takes 40 bytes each, above
 * 1024 some 170, of POLYPATH_ORDER_NO_ANY_SOURCE some 250.
 * `launch_per_phase`, 0 or 1: a batch by the whole GPU (a capacity above 1024, MPI's order or
 * partitioned) is a row of launches, slower, which needs no more than one block's room on the GPU;
 * 0: it is one cooperative launch, which begins when a block of 512 threads has room on each
 * multiprocessor: not next to a kernel that never ends and leaves less. `reserved` are 0. */
typedef struct polypath_matcher_options {
  uint32_t order; /* a polypath_match_order */
  uint32_t capacity;
  uint64_t launch_per_phase;
  uint64_t reserved[3];
} polypath_matcher_options;

/* Makes a matcher on the GPU of this rank of `comm`, which outlives it. Not collective.
 * POLYPATH_INVALID_ARGUMENT: an option. POLYPATH_NOT_SUPPORTED: no kernels for this GPU. */
POLYPATH_API polypath_status polypath_matcher_create(polypath_comm* comm,
                                                     const polypath_matcher_options* options,
                                                     polypath_matcher** matcher);
/* Waits until its batches are done. NULL is allowed. */
POLYPATH_API polypath_status polypath_matcher_destroy(polypath_matcher* matcher);

/* ---- On a stream ------------------------------------------------------------------------------
 * Asynchronous, on a stream of the matcher's GPU. Arrays are memory that this GPU reaches, and do
 * not overlap. Batches of one matcher run one after another, on any streams; those
 * of graphs at each launch (drivers from CUDA 12.3 on), for which a graph waits for an event of the
 * matcher and records it: the matcher outlives the graph, which no kernel can launch. */

/* One batch by itself; nothing is left over from earlier ones, nor for later ones.
 * `matched_message` has a place for each receive: the index of its message, or
 * POLYPATH_NO_MATCH. `outcome`, one, may be NULL. POLYPATH_INVALID_ARGUMENT: more than the
 * capacity, or NULL. */
POLYPATH_API polypath_status polypath_match(polypath_matcher* matcher,
                                            const polypath_envelope* messages, size_t message_count,
                                            const polypath_envelope* receives, size_t receive_count,
                                            uint32_t* matched_message,
                                            polypath_match_result* outcome, void* stream);

/* The same for `queues` that have nothing to do with each other, all at once. The messages of queue
 * q are those from message_begins[q] to before message_begins[q + 1], and so for its receives;
 * indices count from the queue's first message. `outcomes` has one for each queue, or is NULL. A
 * queue with more of either than POLYPATH_MATCH_BATCHED_MAX, or than the capacity, gets
 * POLYPATH_MATCH_FULL. */
#define POLYPATH_MATCH_BATCHED_MAX 1024
POLYPATH_API polypath_status polypath_match_batched(polypath_matcher* matcher, size_t queues,
                                                    const polypath_envelope* messages,
                                                    const uint32_t* message_begins,
                                                    const polypath_envelope* receives,
                                                    const uint32_t* receive_begins,
                                                    uint32_t* matched_message,
                                                    polypath_match_result* outcomes, void* stream);

/* Matches what is new together with what earlier calls left over, exactly as if all had come at
 * once, and keeps what is left. `pairs` has room for as many as the capacity, and gets
 * outcome->matches of them, in the order of their receives. */
POLYPATH_API polypath_status polypath_match_incremental(
    polypath_matcher* matcher, const polypath_envelope* messages, size_t message_count,
    const polypath_envelope* receives, size_t receive_count, polypath_match_pair* pairs,
    polypath_match_result* outcome, void* stream);
/* Forgets what is left over, and counts from 0 again. */
POLYPATH_API polypath_status polypath_matcher_reset(polypath_matcher* matcher, void* stream);

/* ---- On the host ------------------------------------------------------------------------------
 */

/* As polypath_match by `order` (a polypath_match_order), at once, on arrays of the host; needs no
 * GPU. Any counts up to 2^32 - 2. */
POLYPATH_API polypath_status polypath_match_host(int order, const polypath_envelope* messages,
                                                 size_t message_count,
                                                 const polypath_envelope* receives,
                                                 size_t receive_count, uint32_t* matched_message,
                                                 polypath_match_result* outcome);

/* Waits for the matcher's batches; then how they went: {"batches", "queues", "messages",
 * "receives", "matches", "refused", "unmatched_messages", "unmatched_receives"}, and "launches" of
 * kernels. For polypath_free_string(). */
POLYPATH_API polypath_status polypath_matcher_report(polypath_matcher* matcher, char** json);

#ifdef __cplusplus
}
#endif

#endif
