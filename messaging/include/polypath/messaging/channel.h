/* polypath: channels, by which kernels send and receive with tags (polypath/device/channel.cuh),
 * and the rings of their active messages (polypath/device/active_messages.cuh): where they lie,
 * and each rank's view of them.
 *
 * Both lie in symmetric memory of a communicator; all waits end as its own do, with an abort or at
 * the time limit, and polypath_comm_check() says why. Calls that say "collective" are made by all
 * ranks, as in comm.h, with the same options. Destroy both before their communicator. Errors, units
 * and strings: polypath.h.
 */
#ifndef POLYPATH_MESSAGING_CHANNEL_H
#define POLYPATH_MESSAGING_CHANNEL_H

#include "polypath/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Channels --------------------------------------------------------------------------------
 */

/* A channel, as one rank sees it. */
typedef struct polypath_channel polypath_channel;

/* The same on all ranks. Begin with zeros: 0 is the default. */
typedef struct polypath_channel_options {
  uint32_t contexts;    /* each for one group of every rank, with its own messages; 0: 1 */
  uint32_t ring_bytes;  /* from one rank to another in one context, a power of two: three quarters
                             of it are messages'; 256 to 16 Mi; 0: 16384 */
  uint32_t requests;    /* under way at once in a context: a power of two, 32 to 1024; 0: 128 */
  uint32_t unexpected;  /* messages of a context that arrive before their receives: a power of
                             two, 32 to 65536; when there are more, their senders wait; 0: 1024 */
  uint32_t eager_bytes; /* larger messages are put into the matched receive's buffer; 0: 512, or
                             what the ring carries at once where that is less */
  uint32_t timeout_ms;  /* of one wait; 0: that of the communicator, when a view is made */
  uint32_t reserved[4]; /* 0 */
} polypath_channel_options;

/* Collective: a channel of all ranks, 32 at most. Messages larger than eager_bytes are received
 * into `windows`, symmetric memory of this communicator, 64 at most, which outlives the
 * channel; NULL where `count` is 0. POLYPATH_INVALID_ARGUMENT: what is wrong with the options.
 * POLYPATH_COMMUNICATOR_ERROR, on all ranks: memory is short on one, or options differ. */
POLYPATH_API polypath_status polypath_channel_create(polypath_comm* comm,
                                                     const polypath_channel_options* options,
                                                     const polypath_symmetric* const* windows,
                                                     int count, polypath_channel** channel);
/* The same for all `ranks` ranks of a communicator that this process has: `windows` has `count` of
 * rank 0, then of rank 1, ...; `channels` has a place for each. */
POLYPATH_API polypath_status polypath_channel_create_all(polypath_comm* const* comms, int ranks,
                                                         const polypath_channel_options* options,
                                                         const polypath_symmetric* const* windows,
                                                         int count, polypath_channel** channels);
/* Collective. Work of all ranks that uses it must have completed. NULL is not allowed. After
 * every status but POLYPATH_INVALID_ARGUMENT the handle is gone. */
POLYPATH_API polypath_status polypath_channel_destroy(polypath_channel* channel);
POLYPATH_API polypath_status polypath_channel_destroy_all(polypath_channel* const* channels,
                                                          int ranks);
/* What this rank's kernels need: a polypath::device::channel_view (polypath/device/
 * channel_view.hpp), `bytes` its size. What it points to is the channel's.
 * POLYPATH_INVALID_ARGUMENT: another size, as of the headers of another version. */
POLYPATH_API polypath_status polypath_channel_view(const polypath_channel* channel, void* view,
                                                   size_t bytes);

/* ---- Active messages -------------------------------------------------------------------------
 */

/* The rings of active messages, as one rank sees them. */
typedef struct polypath_active_messages polypath_active_messages;

/* The same on all ranks. Begin with zeros: 0 is the default. */
typedef struct polypath_active_messages_options {
  size_t argument_bytes; /* the most of one message: 0 to 88. The kernels' handlers say it, so
                             polypath_active_messages_view checks it against their cells */
  uint32_t shards;       /* rings from one rank to another, which groups that send spread over: a
                             power of two, as many as groups at best; 0: 64 */
  uint32_t capacity;     /* messages of a ring: a power of two, at least 128; 0: 512 */
  uint32_t timeout_ms;   /* as of channels */
  uint32_t reserved[5];  /* 0 */
} polypath_active_messages_options;

/* Collective: rings from each rank to each, for requests and for replies. Errors: as
 * polypath_channel_create. */
POLYPATH_API polypath_status polypath_active_messages_create(
    polypath_comm* comm, const polypath_active_messages_options* options,
    polypath_active_messages** messages);
POLYPATH_API polypath_status polypath_active_messages_create_all(
    polypath_comm* const* comms, int ranks, const polypath_active_messages_options* options,
    polypath_active_messages** messages);
/* As polypath_channel_destroy. */
POLYPATH_API polypath_status polypath_active_messages_destroy(polypath_active_messages* messages);
POLYPATH_API polypath_status
polypath_active_messages_destroy_all(polypath_active_messages* const* messages, int ranks);
/* A polypath::device::active_messages_view (polypath/device/active_messages_view.hpp). One run of
 * kernels, up to their close(): then create them anew. */
POLYPATH_API polypath_status polypath_active_messages_view(const polypath_active_messages* messages,
                                                           void* view, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
