/* The laboratory of polypath: benchmarks, the tuner, and what CUDA graphs cost.
 *
 * It is in libpolypath_lab.so, which holds the whole engine as well: a program links it instead
 * of libpolypath.so, and uses all of polypath.h from it. A context of the one library is not for
 * the other. Threads, errors and strings: as in polypath.h; one of these functions at a time runs
 * on a context. */
#ifndef POLYPATH_LAB_H
#define POLYPATH_LAB_H

#include <polypath/comm.h>
#include <polypath/polypath.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Benchmark --------------------------------------------------------------------------------
 */

/* One row of a benchmark: these transfers together, native copies and polypath in alternating
 * pairs. */
typedef struct polypath_bench_request {
  const polypath_transfer_request* transfers;
  size_t count;
  int warmup;     /* untimed pairs first; at least 1, whose bytes are verified */
  int iterations; /* timed pairs, at least 1 */
  int window;     /* copies at once, each on buffers and streams of its own, before the host waits
                     (1 to 64; 0 is 1); bytes and GB/s then are sums over the window */
  int compare_executors; /* 1: also the plan as streams against the same as graphs, in pairs */
} polypath_bench_request;

/* Runs it on buffers of its own, with random contents and a poisoned destination; every byte is
 * compared after each way was run. Prepares the routes first.
 * {"bytes" (a transfer), "window", "native_us", "polypath_us" (medians of the whole group),
 * "native_gbps", "polypath_gbps", "speedup", "limit_gbps", "limit_from": "flow"|"measured",
 * "verified": bool, "executor", "issue_us", "native_issue_us" (CPU time of the calls, median),
 * "copies", "routes": [{"src", "dst", "route", "share", "chunks", "bytes"}], "native": bool,
 * "reason", "counted": {"split", "graphs" (launches), "native_share", "routes": [{"src", "dst",
 * "route", "share"}]}: how the transfers of all runs really went, shares of all bytes; "routes" is
 * the plan, of a window that of its first transfer, "executors" (if asked for, and split):
 * {"stream_us", "graph_us", "stream_issue_us", "graph_issue_us"}} limit_gbps is the maximum flow;
 * for transfers to or from host memory on a real node it is what all GPUs reach at once in that
 * direction, measured in the same run. POLYPATH_INTERNAL_ERROR when bytes differ: the message says
 * where. */
POLYPATH_API polypath_status polypath_bench(polypath_context* context,
                                            const polypath_bench_request* request, char** json);

/* Starts (on = 1) or ends (on = 0) other traffic. Returns 0 once it flows, or once none is left;
 * anything else where that failed. */
typedef int (*polypath_traffic_switch)(int on, void* user);

/* One row of a benchmark next to other traffic. */
typedef struct polypath_bench_beside_request {
  const polypath_transfer_request* transfers; /* together, as of polypath_bench_request */
  size_t count;
  int warmup;     /* untimed pairs at the begin of each round */
  int iterations; /* timed pairs of each phase, at least 1 */
  int rounds;     /* at least 1; each is a phase on the idle node, then one next to the traffic */
  const polypath_transfer_request*
      own; /* traffic of this process: copied again and again, natively, on
                                  streams of their own; NULL: none */
  size_t own_count;
  int own_queue;    /* copies of each that are queued at any time, at least 1 */
  double own_on_us; /* of each period; both are 0 for traffic without pause */
  double own_off_us;
} polypath_bench_beside_request;

/* Runs it on buffers of its own and compares every byte of both ways before the traffic, next to it
 * and after it. `traffic` may be NULL where there is own traffic.
 * {"group_bytes" (of all transfers together), "verified", "rounds": [{"idle": {"native_us": [],
 * "polypath_us": []}, "loaded": (the same), "recovery_us": from the end of the traffic to the begin
 * of the first transfer at 0.97 of the idle rate, or null where there was none within 2 s}]}
 * Samples are in the order of measurement, polypath and native in turn, polypath first.
 * POLYPATH_INTERNAL_ERROR when bytes differ, or `traffic` failed. */
POLYPATH_API polypath_status polypath_bench_beside(polypath_context* context,
                                                   const polypath_bench_beside_request* request,
                                                   polypath_traffic_switch traffic, void* user,
                                                   char** json);

/* One row of a benchmark of small blocks: a batch of `count` blocks between random places. */
typedef struct polypath_bench_blocks_request {
  const char* src;
  const char* dst;
  size_t block_bytes;
  size_t count;
  int warmup;     /* untimed pairs first, 0 or more */
  int iterations; /* timed pairs, at least 1 */
  int rounds;     /* next to other traffic: as of polypath_bench_beside_request; else 0 */
} polypath_bench_blocks_request;

/* The driver's batch (cuMemcpyBatchAsync, or single copies where it has none) and
 * polypath_copy_batch_async() in alternating pairs, on buffers of its own with random contents and
 * a poisoned destination; every byte is compared. Times are from the call to the end of the copies:
 * what the CPU takes counts.
 * {"src", "dst", "block_bytes", "count", "bytes" (of all blocks), "native": "batch"|"copies",
 *  "native_us", "polypath_us", "native_gbps", "polypath_gbps", "speedup", "native_issue_us",
 *  "issue_us" (CPU time of a call), "native_share" (the part of the bytes that polypath
 *  left to the driver), "routes": [{"route", "share"}] (by kernels), "verified",
 *  "queued": null on a simulated node, or {"native_gbps", "polypath_gbps"}: the same on a stream
 *  that holds work when the call begins, so that the begin of the CPU's time does not count}
 * With `traffic` the value is that of polypath_bench_beside(), of traffic outside this process.
 * POLYPATH_INTERNAL_ERROR when bytes differ: the message says where. */
POLYPATH_API polypath_status polypath_bench_blocks(polypath_context* context,
                                                   const polypath_bench_blocks_request* request,
                                                   polypath_traffic_switch traffic, void* user,
                                                   char** json);

/* One row of a benchmark of reads from a file. */
typedef struct polypath_bench_file_request {
  const char* dst;  /* a GPU */
  const char* file; /* NULL: one with random contents, in the folder TMPDIR or /tmp */
  size_t bytes;     /* its first ones; 0: all of `file` */
  int warmup;       /* untimed pairs first, 0 or more */
  int iterations;   /* timed pairs, at least 1 */
  int rounds;       /* next to other traffic: as of polypath_bench_beside_request; else 0 */
} polypath_bench_file_request;

/* A mapping of the file that the driver copies (mmap, cuMemcpyAsync, munmap), and
 * polypath_read_async(), in alternating pairs, to a buffer of its own with a poisoned destination;
 * every byte is compared with the file. The file is in the page cache, if it fits. Times are from
 * the call to the end of the copies.
 * {"src": "file", "dst", "bytes", "native": "mmap", "native_us", "polypath_us", "native_gbps",
 *  "polypath_gbps", "speedup", "threads" (of the process), "native_share" (the part of the bytes
 *  that the driver copied in polypath's reads), "routes": [{"route", "share"}], "verified"}
 * With `traffic` the value is that of polypath_bench_beside(), of traffic outside this process.
 * POLYPATH_INTERNAL_ERROR when bytes differ: the message says where. */
POLYPATH_API polypath_status polypath_bench_file(polypath_context* context,
                                                 const polypath_bench_file_request* request,
                                                 polypath_traffic_switch traffic, void* user,
                                                 char** json);

/* One row of a benchmark of spreads: the same bytes to a buffer on each of these GPUs. */
typedef struct polypath_bench_spread_request {
  const char* src; /* "host0", "gpu0" */
  const int* gpus;
  size_t count;
  size_t bytes;   /* that each GPU receives */
  int pageable;   /* 1: the source is host memory that is not pinned */
  int warmup;     /* untimed pairs first, 0 or more */
  int iterations; /* timed pairs, at least 1 */
  int rounds;     /* next to other traffic: as of polypath_bench_beside_request; else 0 */
} polypath_bench_spread_request;

/* A native copy for each GPU, all at once on streams of their own, and polypath_spread_async() in
 * alternating pairs, on buffers of its own with random contents and poisoned destinations; every
 * byte on every GPU is compared. GB/s are what each GPU receives.
 * {"src", "gpus", "bytes", "native_us", "polypath_us" (medians, until the last GPU has all),
 *  "native_gbps", "polypath_gbps", "speedup", "limit_gbps", "native_issue_us", "issue_us" (CPU time
 *  of a call), "calls", "native_calls" (calls of polypath that were a copy for each GPU),
 *  "parts": [{"gpu" (that fetched it), "share"}], "verified"}
 * With `traffic` the value is that of polypath_bench_beside(), of traffic outside this process.
 * POLYPATH_INTERNAL_ERROR when bytes differ: the message says where. */
POLYPATH_API polypath_status polypath_bench_spread(polypath_context* context,
                                                   const polypath_bench_spread_request* request,
                                                   polypath_traffic_switch traffic, void* user,
                                                   char** json);

/* What each phase of a CUDA graph costs for one transfer cut into `nodes` copies: `nodes` / 2
 * chunks, each carried to a staging memory and on from there. */
typedef struct polypath_graph_phases_request {
  const char* src;
  const char* dst;
  size_t bytes;
  int nodes;      /* even, 2 to 256 */
  int iterations; /* graphs that are made, at least 1: medians over them */
} polypath_graph_phases_request;

/* {"bytes", "nodes", "via", "create_us", "construct_us", "instantiate_us", "first_launch_us",
 *  "launch_us", "patch_us" (new addresses for every node), "destroy_us": CPU time of the calls,
 * medians; "first_latency_us", "latency_us", "patched_latency_us": from the first call of an
 * iteration to the end of its bytes, the phases of that iteration included; "stream_issue_us",
 * "stream_latency_us": the same copies by streams and events; "gpu_bytes": GPU memory that an
 * instantiated and launched graph holds, or null where it cannot be told; "verified": bool}
 * POLYPATH_NOT_SUPPORTED: a driver without graphs. POLYPATH_INTERNAL_ERROR when bytes differ. */
POLYPATH_API polypath_status polypath_graph_phases(polypath_context* context,
                                                   const polypath_graph_phases_request* request,
                                                   char** json);

/* ---- Benchmark of collectives -----------------------------------------------------------------
 */

/* What one rank measures with, from row to row. */
typedef struct polypath_collective_bench polypath_collective_bench;

/* Collective. What to compare with: `nccl`, a library of NCCL, "" for libnccl.so.2; or `choice`,
 * polypath itself by "kernels", "lines", "pairwise", "hierarchical", "published" (hierarchical with
 * one leader an island and eight chunks), "ring" (over direct links, one path a hop), "host"
 * (kernels, and part of the sums through host memory) or "host-trees" (all through host memory);
 * NULL and NULL for no comparison. `comm` must outlive it, and should have made no collective yet:
 * scratch for copies is taken by the first. POLYPATH_NOT_SUPPORTED, with the reason: there is no
 * such library. */
POLYPATH_API polypath_status polypath_collective_bench_create(polypath_comm* comm, const char* nccl,
                                                              const char* choice,
                                                              polypath_collective_bench** bench);
/* Collective; NULL is allowed. */
POLYPATH_API void polypath_collective_bench_destroy(polypath_collective_bench* bench);

/* One row: the same on all ranks. */
typedef struct polypath_collective_bench_request {
  const char* op;        /* "allreduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
                            "all_to_all" */
  const char* type;      /* "float32", ...: polypath_data_type in small letters */
  const char* operation; /* "sum", ...: a polypath_reduce_op */
  size_t bytes;          /* of a rank's larger buffer; rounded up to whole elements of every rank */
  int warmup;            /* untimed pairs first, 0 or more */
  int iterations;        /* timed pairs, at least 1 */
  int calls;             /* in a row, whose time is one sample; at least 1 */
  const char* choice;    /* what is measured: as above; NULL: what the plan chooses */
} polypath_collective_bench_request;

/* Collective. Polypath and the baseline in alternating pairs of rows of calls, on buffers of its
 * own with random contents and poisoned destinations; every element is compared before and after,
 * in rows of calls that the ranks begin up to 0.3 ms apart: polypath's with the sum in rank order,
 * bit by bit, or with what any order may give where the plan says so, as the baseline's.
 * {"op", "bytes", "type", "ranks", "algorithm", "us" (a call: median, of the slowest rank),
 *  "bus_gbps", "predicted_us", "limit_bus_gbps", "cpu_us" (of issuing a call), "verified": true,
 *  "exact": bool (in rank order), "baseline": {"name", "us", "bus_gbps", "cpu_us"}, "speedup"};
 * without a baseline the last two are absent. POLYPATH_INTERNAL_ERROR, on all ranks, when an
 * element is wrong: the message says where. */
POLYPATH_API polypath_status
polypath_collective_bench_run(polypath_collective_bench* bench,
                              const polypath_collective_bench_request* request, char** json);

/* ---- Tuning -----------------------------------------------------------------------------------
 */

/* What to search. */
typedef struct polypath_tune_request {
  const polypath_transfer_request*
      transfers; /* one of each pair class to tune (bytes are ignored); NULL: all */
  size_t count;
  const size_t* sizes; /* bytes; NULL: 4 MiB to 512 MiB in steps of 2 */
  size_t size_count;
  double budget_s; /* seconds that the search may take in all; 0: 60 */
  int exhaustive; /* 0: a local search around the planner's prediction; 1: the whole grid, which may
                      pass the budget of 0 */
  int again;      /* 1: also what the profile holds already */
} polypath_tune_request;

/* Called between measurements on the calling thread; what it returns other than 0 stops the search.
 */
typedef int (*polypath_tune_progress)(size_t done, size_t total, double seconds_left,
                                      const char* what, void* user);

/* Searches the best routes, shares, chunks, slots and executor for each pair class, size class and
 * pattern by measurement, uses what it finds from now on, and keeps it in the node's profile after
 * each: a search that was stopped goes on where it was. `progress` may be NULL. No other transfer
 * of this context may be under way. The value is that of polypath_tuning_results() with "stopped":
 * bool and "seconds" as well. */
POLYPATH_API polypath_status polypath_tune(polypath_context* context,
                                           const polypath_tune_request* request,
                                           polypath_tune_progress progress, void* user,
                                           char** json);

/* What to search of collectives: the same on all ranks. */
typedef struct polypath_tune_collectives_request {
  const char* op;      /* one, as of polypath_collective_bench_request; NULL: all six */
  const size_t* sizes; /* bytes of a rank's larger buffer; NULL: 16 KiB to 64 MiB (on a simulated
                          node to 4 MiB) in steps of 2 */
  size_t size_count;
  double budget_s; /* seconds that the search may take in all, by rank 0's clock; 0: 60 */
  int again;       /* 1: also what the profile holds already */
} polypath_tune_collectives_request;

/* Collective: measures for each operation and size the ways that plans know (kernels by cells,
 * by lines and flat ones, of one and two stages, by several numbers of blocks; what runs by copies
 * where the node has islands) against the plan's own, in alternating pairs of rows of calls, every
 * element compared; uses what it finds from now on, in this communicator, and keeps it in the
 * profile of rank 0's node after each size. Another way than the plan's is taken if it is 1 %
 * faster, and in 8 of 9 pairs. `progress` (may be NULL) is asked on rank 0. The value is that of
 * polypath_tuning_results() with "stopped": bool and "seconds" as well; on other ranks than 0 of
 * what their own profile holds. POLYPATH_INTERNAL_ERROR, on all ranks, when an element is wrong. */
POLYPATH_API polypath_status polypath_tune_collectives(
    polypath_collective_bench* bench, const polypath_tune_collectives_request* request,
    polypath_tune_progress progress, void* user, char** json);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* POLYPATH_LAB_H */
