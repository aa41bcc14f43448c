/* polypath: one transfer over every path of a node. The C API, and the stable ABI.
 *
 * Units: bytes; GB/s = 1e9 bytes/s; microseconds. Memories are named "gpu0", "gpu1", "host0"; GPU
 * numbers are those of the CUDA driver (after CUDA_VISIBLE_DEVICES).
 *
 * Errors: every function that can fail returns a status; polypath_last_error() then gives one line
 * for people, of the calling thread. A function that fails changes nothing, except where its own
 * comment says otherwise.
 *
 * Threads: a context may be used from any number of threads at once. A context outlives its
 * transfers: destroy it only after the streams that carry them have been synchronised.
 *
 * Strings returned through `char **` belong to the caller: polypath_free_string(). All are JSON,
 * UTF-8.
 */
#ifndef POLYPATH_POLYPATH_H
#define POLYPATH_POLYPATH_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define POLYPATH_API __attribute__((visibility("default")))
#else
#define POLYPATH_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define POLYPATH_VERSION_MAJOR 0
#define POLYPATH_VERSION_MINOR 1
#define POLYPATH_VERSION_PATCH 0

typedef enum polypath_status {
  POLYPATH_SUCCESS = 0,
  POLYPATH_INVALID_ARGUMENT = 1,   /* an address, size, name, setting or file is not usable */
  POLYPATH_NO_DEVICE = 2,          /* no CUDA driver or no GPU, and no node was named */
  POLYPATH_NOT_SUPPORTED = 3,      /* the driver lacks what this call needs */
  POLYPATH_DRIVER_ERROR = 4,       /* a driver call failed; the message names it */
  POLYPATH_INTERNAL_ERROR = 5,     /* out of memory, or a defect of this library */
  POLYPATH_COMMUNICATOR_ERROR = 6, /* ranks could not come together, or one failed (comm.h) */
  POLYPATH_FILE_ERROR = 7          /* a file could not be read, or is too short */
} polypath_status;

/* "0.1.0". Never fails. */
POLYPATH_API const char* polypath_version(void);
/* "POLYPATH_NO_DEVICE". Never fails; the string is static. */
POLYPATH_API const char* polypath_status_name(polypath_status status);
/* The message of this thread's last failed call; "" when there was none. Valid until the thread's
 * next call. */
POLYPATH_API const char* polypath_last_error(void);
/* The CUresult of the driver call that made this thread's last failed call fail; 0 when none did.
 */
POLYPATH_API int polypath_last_cuda_result(void);
/* Frees a string returned by this library. NULL is allowed. */
POLYPATH_API void polypath_free_string(char* string);

/* ---- Context ----------------------------------------------------------------------------------
 */

/* The driver, the node's capacity graph and all resources for transfers. */
typedef struct polypath_context polypath_context;

/* One setting, e.g. {"routes", "direct,gpu"}; names and ranges: polypath_settings(). It overrides
 * the environment. */
typedef struct polypath_setting {
  const char* name;
  const char* value;
} polypath_setting;

/* Makes a context. `settings` may be NULL when `count` is 0; the strings are copied.
 * Opens the CUDA driver; creates no CUDA context and allocates nothing on any GPU, but with
 * emulate_mesh a context on every linked GPU, and it measures the emulated links (a second or two).
 * POLYPATH_NO_DEVICE: no GPU here and no node named. POLYPATH_INVALID_ARGUMENT: a setting or the
 * node file, with file, line and allowed range. POLYPATH_INTERNAL_ERROR: also in a child of fork()
 * whose parent was making or ending a context at that moment. */
POLYPATH_API polypath_status polypath_context_create(const polypath_setting* settings, size_t count,
                                                     polypath_context** context);

/* Releases everything. NULL is allowed. All transfers must have completed. */
POLYPATH_API void polypath_context_destroy(polypath_context* context);

/* The function of the driver that this context works with, by its exported name ("cuMemAlloc_v2");
 * NULL where it has none, or an argument is NULL. Of the simulated driver when a node was named. */
POLYPATH_API void* polypath_driver_function(polypath_context* context, const char* name);

/* ---- Transfers --------------------------------------------------------------------------------
 */

/* Copies `bytes` from `src` to `dst`, ordered on `stream` exactly as cuMemcpyAsync is, and as
 * asynchronous: it returns when the copies are issued. `stream` is a CUstream (or cudaStream_t);
 * NULL is the legacy default stream of the current CUDA context. `dst` and `src` are device memory
 * of any GPU of this process, or host memory, in any combination. Not worth splitting, managed
 * memory, a stream in capture: the native copy, on the same stream. Pageable memory is copied by
 * CPU threads once the stream has come to it: the call returns when the memory has been read, or is
 * written. Zero bytes: success, nothing is issued.
 * POLYPATH_INVALID_ARGUMENT: null, unknown or freed address, a range past its allocation,
 * overlapping ranges; the message names the argument, the address and the allocation.
 * POLYPATH_DRIVER_ERROR: the native copy failed. A call for a route that fails is no error: all is
 * copied natively then, after what was issued. Only where `stream` cannot be made to wait for that
 * the call fails, and the contents of `dst` are undefined. */
POLYPATH_API polypath_status polypath_copy_async(polypath_context* context, void* dst,
                                                 const void* src, size_t bytes, void* stream);

/* polypath_copy_async(), but what is not worth splitting is left to the caller: for programs that
 * have a copy call of their own, and for interposers between a program and the driver. *issued is
 * 1: the transfer is under way, as polypath_copy_async() would have it. 0, with any status: copy it
 * natively on `stream`; the counters name the reason. Nothing was done, or a call for a route
 * failed: then some of the bytes of `src` are in `dst`, or will be before what `stream` is given
 * next begins. POLYPATH_DRIVER_ERROR with 1: as there. */
POLYPATH_API polypath_status polypath_try_copy_async(polypath_context* context, void* dst,
                                                     const void* src, size_t bytes, void* stream,
                                                     int* issued);

/* polypath_try_copy_async() of a transfer that the caller knows to follow: nothing but event
 * records was put on `stream` since the last transfer that polypath issued there. Its staged routes
 * need not wait for that one to end, except where the two touch the same memory. The order on
 * `stream` is what it would be without. On a default stream, and with memory that the program
 * mapped itself, it is polypath_try_copy_async(). */
POLYPATH_API polypath_status polypath_try_copy_sequenced_async(polypath_context* context, void* dst,
                                                               const void* src, size_t bytes,
                                                               void* stream, int* issued);

/* Bytes; SIZE_MAX: never. */
typedef struct polypath_thresholds {
  size_t gpu_to_gpu;
  size_t host_to_gpu;
  size_t gpu_to_host;
  size_t pageable_to_gpu; /* host memory that CUDA does not know */
  size_t gpu_to_pageable;
} polypath_thresholds;

/* The sizes below which no plan of this node splits a transfer, as it is measured and tuned now:
 * callers of polypath_try_copy_async() need not ask for less. */
POLYPATH_API polypath_status polypath_split_thresholds(polypath_context* context,
                                                       polypath_thresholds* thresholds);

/* One transfer of a group; the fields are the arguments of polypath_copy_async(). */
typedef struct polypath_transfer {
  void* dst;
  const void* src;
  size_t bytes;
  void* stream;
} polypath_transfer;

/* Starts `count` transfers that are planned together, so that their routes share links without
 * contending. Each is ordered on its own stream, as if by polypath_copy_async: several on one
 * stream go in this order, one after another. Between streams there is no order. Errors as there;
 * the message names the index of the transfer. Arguments of all are checked before any is issued.
 */
POLYPATH_API polypath_status polypath_group_copy_async(polypath_context* context,
                                                       const polypath_transfer* transfers,
                                                       size_t count);

/* polypath_group_copy_async(), but what is not worth splitting is left to the caller, transfer by
 * transfer: issued[i] is 1 or 0 as *issued of polypath_try_copy_async(), and the caller must copy
 * each transfer that is 0 natively. Those that are left come after those that were taken, on one
 * stream as well: it is for transfers that do not need each other's order. With POLYPATH_SUCCESS
 * some may be 1 and others 0. With POLYPATH_DRIVER_ERROR those that are 1 may be as
 * polypath_copy_async() says of that. */
POLYPATH_API polypath_status polypath_try_group_copy_async(polypath_context* context,
                                                           const polypath_transfer* transfers,
                                                           size_t count, int* issued);

/* Copies `count` blocks of bytes[i] from src[i] to dst[i], all on `stream`: after what the stream
 * holds, and before what it is given next; among each other they have no order, and no block may be
 * written that another one of the batch reads or writes. The arrays are read before it returns.
 * Memory, completion and errors as of polypath_copy_async(), block by block; the message names the
 * index, and nothing is issued when an argument is wrong. Between pinned host memory and a GPU,
 * kernels of all GPUs that may help copy a part each over their own host link; between two GPUs one
 * kernel does; blocks of `batch_copy_size` bytes or more are transfers as of polypath_copy_async().
 * The rest, and a batch that is too small to gain, goes by the driver (cuMemcpyBatchAsync where it
 * can). What kernels need is made in the background when a batch first asks for it; until then
 * batches go by the driver. */
POLYPATH_API polypath_status polypath_copy_batch_async(polypath_context* context, size_t count,
                                                       void* const* dst, const void* const* src,
                                                       const size_t* bytes, void* stream);

/* As polypath_copy_batch_async(), but a batch of which all blocks would go natively is left to the
 * caller: *issued is 0 then, with any status, and nothing was done. 1: as
 * polypath_copy_batch_async() says. */
POLYPATH_API polypath_status polypath_try_copy_batch_async(polypath_context* context, size_t count,
                                                           void* const* dst, const void* const* src,
                                                           const size_t* bytes, void* stream,
                                                           int* issued);

/* Copies `bytes` of a file, from byte `offset` on, to `dst`, memory of a GPU of this process: after
 * what `stream` holds, and before what it is given next. CPU threads read the file, preferably from
 * the page cache, into pinned memory, and chunks go from there over the links of all GPUs, as of
 * pageable memory. It returns when all has been read: then the file may be closed or changed, and
 * `stream` waits for the rest. `file` is an open descriptor, whose position stays as it is; several
 * reads may share it. A small read, and one that would gain nothing, goes through memory of the
 * process and the driver. With O_DIRECT, offset and bytes must be as the file system demands. Zero
 * bytes: success, nothing is done.
 * POLYPATH_FILE_ERROR: the system could not read it, or it ended before; then nothing of the read
 * is under way any more, and the contents of `dst` are undefined. A regular file that is too short
 * when the call begins: nothing was done.
 * POLYPATH_INVALID_ARGUMENT: a descriptor that is not open for reading, or has no positions; `dst`
 * as of polypath_copy_async(), and where it is host memory.
 * POLYPATH_NOT_SUPPORTED: `stream` is in capture. POLYPATH_DRIVER_ERROR: as there. */
POLYPATH_API polypath_status polypath_read_async(polypath_context* context, int file,
                                                 uint64_t offset, void* dst, size_t bytes,
                                                 void* stream);

/* Copies the same `bytes` from `src` to each of `count` buffers: to dst[i] on streams[i], which may
 * all be one stream. It is one operation on all its streams, as a broadcast is: nothing of it
 * begins before all streams have come to it, and what any of them is given next waits for all of
 * it. So work before it on one stream must not wait for what comes after it on another. `src` is
 * host memory, pinned or pageable, or memory of a GPU. Destinations are memory of different GPUs.
 * Each GPU fetches a part over its own link, and sends it on to all others from where it lies in
 * dst[i]. Pageable memory is read by CPU threads, and the call returns when it has been read.
 * Not worth that (small, links loaded, GPUs that do not reach each other, several buffers in one
 * GPU, a stream in capture, memory of another process): a copy for each destination, natively on
 * its own stream; the counters name the reason. A destination in the source's own GPU is copied
 * natively. What it needs is made in the background when a spread first asks for it. The arrays are
 * read before it returns. Errors as of polypath_copy_async(); the message names the index, nothing
 * is issued when an argument is wrong. Destinations that overlap: POLYPATH_INVALID_ARGUMENT. */
POLYPATH_API polypath_status polypath_spread_async(polypath_context* context, size_t count,
                                                   void* const* dst, const void* src, size_t bytes,
                                                   void* const* streams);

/* Makes ready, and waits for, all that spreads from `src` ("host0", "gpu0") to these GPUs can use,
 * pageable memory of a host included: contexts, streams, peer access, pinned slots. */
POLYPATH_API polypath_status polypath_prepare_spread(polypath_context* context, const char* src,
                                                     const int* gpus, size_t count);

/* A transfer without addresses, for plans and preparation. */
typedef struct polypath_transfer_request {
  const char* src; /* "gpu0" or "host0"; to plan and to benchmark also "host0:pageable" */
  const char* dst;
  size_t bytes;
} polypath_transfer_request;

/* Makes ready, and waits for, all that transfers between these memories can use, together and each
 * alone: their plans, contexts on staging GPUs, streams, staging memory. Without it background
 * threads do so when the first transfer asks, and transfers go without the staged routes until
 * then. */
POLYPATH_API polypath_status polypath_prepare(polypath_context* context,
                                              const polypath_transfer_request* requests,
                                              size_t count);

/* The same for batches between these memories (`bytes` are ignored): contexts, kernels, streams and
 * 8 MiB of pinned host memory. POLYPATH_NOT_SUPPORTED: no kernels for these GPUs. */
POLYPATH_API polypath_status polypath_prepare_batches(polypath_context* context,
                                                      const polypath_transfer_request* requests,
                                                      size_t count);

/* ---- Memory of other processes ----------------------------------------------------------------
 */

/* A transfer from or to memory that was opened by CUDA IPC takes every route when it is known on
 * which GPU that memory lies, which the driver does not say. So the process that exports it, and
 * the one that opens it, both of one user, tell this library; what is not told is copied natively,
 * and counted. `handle` is the 64 bytes of a CUipcMemHandle. */

/* This process made `handle` for the memory that holds `address`: other processes may learn where
 * it lies, until it is told of other memory at the same address. POLYPATH_INVALID_ARGUMENT: not
 * memory of a GPU. */
POLYPATH_API polypath_status polypath_ipc_register_export(polypath_context* context,
                                                          const void* handle, const void* address);

/* `address` is what cuIpcOpenMemHandle gave for `handle`, in the current CUDA context. This library
 * opens the handle for other GPUs as well, in the background, when transfers ask for it.
 * POLYPATH_INVALID_ARGUMENT: not memory of a GPU. */
POLYPATH_API polypath_status polypath_ipc_register_import(polypath_context* context,
                                                          const void* handle, const void* address);

/* Before cuIpcCloseMemHandle(address): closes what this library opened, when it is open the last
 * time, which waits for work that uses it. No transfer of it may be under way. Any other address is
 * let pass. */
POLYPATH_API polypath_status polypath_ipc_unregister_import(polypath_context* context,
                                                            const void* address);

/* ---- Mapped memory ----------------------------------------------------------------------------
 */

/* Memory that was mapped by cuMemMap is reached by those GPUs alone that were given access
 * (cuMemSetAccess), so transfers from and to it leave out routes over others. These calls let this
 * library give access to the GPUs that it stages on. A program may also give all GPUs access
 * itself; then it calls nothing here. Under `polypath run` unmodified programs need neither. */

/* The mappings in [address, address + bytes), of memory of a GPU that this process allocated
 * (cuMemCreate, not imported), may be shared from now on: a GPU gets read and write access when a
 * transfer first stages over it, by one cuMemSetAccess on the calling thread. A GPU that the
 * program gave PROT_READ gets no more. cuMemGetAccess() shows what was given. A refusal of the
 * driver costs the route, never the transfer. Nothing happens with the setting share_mappings off.
 * POLYPATH_INVALID_ARGUMENT: not memory of a GPU that was mapped. Any thread; no call for
 * mappings that a transfer is using meanwhile. */
POLYPATH_API polypath_status polypath_share_mapping(polypath_context* context, const void* address,
                                                    size_t bytes);

/* Before cuMemUnmap(address, bytes), and before access is set anew: when it returns no GPU is being
 * given access to these mappings. GPUs that have it keep it until the memory is unmapped. Ranges
 * that are not shared are let pass. Any thread. */
POLYPATH_API polypath_status polypath_unshare_mapping(polypath_context* context,
                                                      const void* address, size_t bytes);

/* ---- Asking -----------------------------------------------------------------------------------
 */

/* The plan of a group of transfers (one or more), without running it:
 * {"bytes", "predicted_us", "predicted_gbps", "native_us", "native_gbps", "limit_gbps",
 *  "transfers": [{"src", "dst", "bytes", "native": bool, "reason",
 *                 "copy_threads", "host_gbps" (both 0 but for pageable memory),
 *                 "routes": [{"route", "kind", "via", "bytes", "share", "chunks", "chunk_bytes",
 *                             "rate_gbps"}],
 *                 "excluded": [{"route", "reason"}]}]}
 * limit_gbps is the maximum flow of the allowed routes. GB/s are sums over the group. A host memory
 * may be "host0:pageable", in a group of one. */
POLYPATH_API polypath_status polypath_plan(polypath_context* context,
                                           const polypath_transfer_request* requests, size_t count,
                                           char** json);

/* The plan of a spread of pinned host memory or a GPU's memory, without running it:
 * {"src", "gpus": [name], "bytes", "native": bool, "reason", "chunks" (of each part),
 *  "predicted_us", "predicted_gbps" (what each GPU receives), "native_us", "native_gbps" (the same
 *  by a copy for each), "limit_gbps" (maximum flow),
 *  "parts": [{"gpu" (that fetches it), "bytes", "share", "chunk_bytes", "rate_gbps",
 *             "feed": {"from", "to"}, "forward": [{"from", "to"}]}]}
 * POLYPATH_INVALID_ARGUMENT: an unknown memory, a GPU twice, the source's own GPU. */
POLYPATH_API polypath_status polypath_plan_spread(polypath_context* context, const char* src,
                                                  const int* gpus, size_t count, size_t bytes,
                                                  char** json);

/* A collective of one rank a GPU, without addresses. */
typedef struct polypath_collective_request {
  const char* op;        /* allreduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all */
  const char* type;      /* float32, bfloat16, int64, ...; NULL: float32 */
  const char* operation; /* sum, product, min, max, avg; NULL: sum */
  size_t bytes;          /* of a rank's larger buffer, that is, of the message */
  const int* gpus;       /* of each rank; NULL: the first `ranks` */
  int ranks;             /* of this node; 0: one for every GPU */
  int root;              /* rank of broadcast and reduce */
  int nodes;             /* equal ones, for allreduce; 0 and 1: this one */
  double network_gbps;   /* of each node, one direction, when there are several */
  const char* algorithm; /* cells, lines, flat, relayed, pairwise, host-trees, mixed,
                            hierarchical, ring; NULL: the best */
  int max_blocks;        /* of a kernel on each GPU; 0: as many as are best */
  int compare;           /* 1: predict every algorithm that could run, also the ring */
  const char* order;     /* of sums of floats: rank, tree; NULL: rank */
} polypath_collective_request;

/* The plan of a collective, without running it, the same on all ranks:
 * {"op", "type", "operator", "bytes", "count", "gpus", "root", "nodes", "network_gbps",
 *  "algorithm", "reason", "islands": [[rank]] or null, "lanes", "ring": [rank] or null,
 *  "order": in which sums are taken, "rank_order": whether that is the sequential sum,
 *  "sum_order": "rank" or "tree", as asked for,
 *  "kernel": {"blocks", "slot_bytes" (of a tile), "lag" (steps from its sending to its taking),
 *   "stages"} or null,
 *  "host_bytes": what goes through host memory next to the kernel (mixed) or null,
 *  "relays": GPUs that are no ranks and carry a part (relayed), or null: [{"gpu", "gbps": what
 *   it adds between two ranks, "share": of the message}], "chunks", "chunk_bytes",
 *  "stages": [{"stage", "moves", "links": [name], "busiest_gbps", "us"}],
 *  "predicted_us", "bus_gbps", "limit_bus_gbps", "link_limit_bus_gbps", "unproven": bool,
 *  "candidates": [{"algorithm", "us", "bus_gbps", "limit_bus_gbps", "reason": why left out}],
 *  "times_ring": {algorithm: times} or null, "published_us",
 *  "tuned": null, or what it follows, an entry of "collectives" of polypath_tuning_results()}
 * All times and rates but those of "tuned" are predictions; "unproven": on several nodes, where
 * nothing was measured.
 * limit_bus_gbps: what all trees over links and host memory carry at best, link_limit_bus_gbps:
 * those over links between GPUs. us and bus_gbps of a candidate are null where it cannot run or was
 * not weighed. times_ring (how many times as fast as the ring over direct links) and published_us
 * (three stages with one leader an island and eight chunks, as published) come with `compare`.
 * POLYPATH_INVALID_ARGUMENT: an unknown name, a GPU that the node lacks, an algorithm that cannot
 * run it. */
POLYPATH_API polypath_status polypath_plan_collective(polypath_context* context,
                                                      const polypath_collective_request* request,
                                                      char** json);

/* The capacity graph:
 * {"name", "title", "source", "simulated", "virtual_time", "fingerprint", "capacities": "node
 * file"|"measured"|"defaults", "gpus": [{"id", "name", "pci", "uuid", "numa", "memory_bytes",
 * "pcie_generation", "pcie_width"}], "hosts": [{"id", "numa", "memory_bytes"}], "links": [{"from",
 * "to", "type", "width", "gbps", "nominal_gbps", "ports": [name]}], "ports": [{"name", "gbps"}],
 * "costs": {...}, "emulated_mesh": null, or {"gbps" (asked of each link), "links": [{"from", "to",
 * "lanes", "gbps" (measured)}]}} */
POLYPATH_API polypath_status polypath_topology(polypath_context* context, char** json);

/* The caller issues a copy natively, now, on `stream`: what it occupies counts as load of its link
 * for this process's transfers and for other processes. Of copies between a GPU and host memory
 * that the library was not offered; polypath_try_copy_async() and its like count those that they
 * leave to the caller. Any thread; takes less than 0.1 us. Never fails because of the copy. */
POLYPATH_API polypath_status polypath_note_copy(polypath_context* context, void* dst,
                                                const void* src, size_t bytes, void* stream);

/* How loaded the links are now, as this process knows it and as others tell:
 * {"time_us": of the clock that busy_us are counted by,
 *  "links": [{"from", "to", "gbps", "loaded": bool, "source": text, "pid": of another
 *             process that says so, or null, "wait_us": how long a copy would wait, or 0,
 *             "processes": [{"pid", "busy_us": predicted time of all its copies so far}]}]}
 * One row stands for all links of one direction between a GPU and host memory. */
POLYPATH_API polypath_status polypath_load(polypath_context* context, char** json);

/* Called during a long operation, on the calling thread: done of total steps, and what comes next.
 */
typedef void (*polypath_progress)(size_t done, size_t total, const char* what, void* user);

/* Measures the capacities of this node (a few seconds), uses them from now on, and keeps them as
 * the node's profile. `progress` may be NULL. No other transfer of this context may be under way.
 */
POLYPATH_API polypath_status polypath_measure(polypath_context* context, polypath_progress progress,
                                              void* user);

/* Every setting: [{"name", "environment", "value", "origin", "default", "allowed", "meaning"}].
 * `context` may be NULL: then as a new context would have them. */
POLYPATH_API polypath_status polypath_settings(polypath_context* context, char** json);

/* {"driver": {"library", "cuda_version", "driver_version"}, "simulated", "nvml": bool,
 *  "kernels": bool (whether this library was built with them), "library": path of this library,
 *  "version", "profile": {"file", "state"},
 *  "graphs": {"supported": bool, "cache_size", "counts": as in polypath_counters()},
 *  "devices": [{"id", "name", "memory_bytes", "free_bytes" or null, "context_active"}],
 *  "staging": [{"memory", "allowed": whether more may be staged there now, "reason": one line,
 *               "bytes": staging memory that this context has there}]} */
POLYPATH_API polypath_status polypath_device_info(polypath_context* context, char** json);

/* What has been done since the context was made:
 * {"transfers", "split", "native", "failed", "bytes", "copies",
 *  "changed_by_load" (transfers that left out a route because others use its links),
 *  "followed" (of the split: their staged routes did not wait for the transfer before them),
 *  "pageable" (of the split: CPU threads copied pageable memory),
 *  "files" (of the split: CPU threads read a file),
 *  "native_by_reason": {reason: count}, "left_out_by_reason": {reason: count},
 *  "routes": [{"src", "dst", "route", "transfers", "bytes"}],
 *  "links": [{"from", "to", "bytes", "copies"}],
 *  "batches": {"calls", "large" (blocks that were transfers of their own), "native" (blocks that
 *              the driver or the caller copied), "native_bytes", "native_by_reason",
 *              "routes": [{"src", "dst", "route", "entries", "bytes"}] (by kernels: "direct" is the
 *              GPU of the pair, "via gpu2" the kernel of GPU 2)},
 *  "spreads": {"calls", "native" (calls that were a copy for each GPU), "pageable" (of the others),
 *              "native_by_reason", "routes": [{"src", "dst", "route", "calls", "bytes"}] ("direct":
 *              what the GPU fetched itself, "via gpu2": what GPU 2 sent on to it)},
 *  "graphs": {"launches", "hits" (same addresses), "patches" (graphs that got other addresses),
 *             "patched_nodes", "builds", "evictions", "failed", "busy" (went by streams instead),
 *             "cached"},
 *  "pinned": {"bytes" (host memory that transfers of this process have page-locked now),
 *             "limit_bytes"},
 *  "shared_mappings": {"granted" (one GPU got access to neighbouring mappings, by one call),
 *                      "refused" (by the driver)},
 *  "staging": [{"memory", "bytes"}]} */
POLYPATH_API polypath_status polypath_counters(polypath_context* context, char** json);
/* The same as lines for people; how many lines there are, and their words, may change. */
POLYPATH_API polypath_status polypath_counters_text(polypath_context* context, char** text);
/* Sets all counts (not the staging sizes) to zero. */
POLYPATH_API polypath_status polypath_counters_reset(polypath_context* context);

/* What was tuned on this node:
 * {"profile": file, "choices": [{"pattern": "one way"|"both ways"|"window", "pair" (class),
 * "bytes", "executor": "stream"|"graph", "routes": [{"route": "direct"|"gpu"|"host", "share",
 * "chunks"}], "slots", "native_gbps", "predicted_gbps", "measured_gbps", "tried", "edited"}],
 * "collectives": [{"op", "ranks" (class of sets of GPUs), "bytes" (of a rank's larger buffer),
 * "algorithm", "stages", "blocks", "tile_bytes", "lag", "lanes", "chunk_bytes" (null where they
 * mean nothing), "planned_us" (a call as the cost model plans it), "us" (so), "tried", "edited"}],
 * "comm": [{"op", "ranks", "bytes", "backend" (UNICONN's choice), "times": [{"backend",
 * "us"}], "pairs", "edited"}]}
 * GB/s are those of the whole group or window. */
POLYPATH_API polypath_status polypath_tuning_results(polypath_context* context, char** json);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* POLYPATH_POLYPATH_H */
