/* Control of the simulated node, for tests and tools that know that they run on one. A program that
 * does not use these functions sees an ordinary CUDA driver.
 *
 * All functions may be called from any thread, after cuInit; before it they return 0 or do nothing.
 * Units: microseconds of virtual time (in functional mode of real time), bytes.
 */
#ifndef POLYPATH_SIM_H
#define POLYPATH_SIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POLYPATH_SIM_API __attribute__((visibility("default")))

/* Whether lines of 128 bytes come whole (POLYPATH_SIM_LINES). A trial may not show that they do
 * not: it is short here. */
POLYPATH_SIM_API int polypath_sim_has_whole_lines(void);

/* Time of the calling thread since cuInit. */
POLYPATH_SIM_API double polypath_sim_clock_us(void);
/* Lets the CPU spend time, as if it computed; in functional mode the call sleeps. */
POLYPATH_SIM_API void polypath_sim_advance_us(double us);
/* Until it says otherwise (0) the calling thread issues work, as this number: in virtual time no
 * other thread's wait lets devices go past its clock, which begins where the latest thread is, and
 * so do those of other ones that have issued nothing yet. So threads that stand for processes issue
 * concurrently in virtual time, in any order in which the machine runs them. */
POLYPATH_SIM_API void polypath_sim_set_issuer(int number);
/* To be called by threads that issue work, with no lock held, before each call that plans by what
 * others have issued: in virtual time it blocks until no other one of them has a turn or is earlier
 * than the caller; at the same instant the lower number is. A turn lasts until the thread's next,
 * or until it issues no more; a call that blocks lends it out. A thread that has done nothing for
 * POLYPATH_SIM_TIMEOUT counts no longer, and stderr says so. */
POLYPATH_SIM_API void polypath_sim_wait_turn(void);

/* Traffic of another program: it copies blocks of block_bytes over the link from one memory to
 * another ("gpu0", "host0"), and keeps queue_blocks of them queued, the one in service included. It
 * begins now; with on_us and off_us it queues blocks for on_us, then none for off_us, and so on;
 * with 0 for both it does so without pause. On a link of host memory this program and the other
 * one take turns of 1.07 ms at the copy engine while both have copies, of any size. A
 * link between GPUs is shared. Link counts do not hold it. Returns an id, at least 1; 0 where
 * there is no such link or a figure is out of range. In functional mode blocks take real time, a
 * copy waits for all blocks queued before its issue, and processes that give the same
 * POLYPATH_SIM_MACHINE see the traffic of each other. */
POLYPATH_SIM_API int polypath_sim_traffic_start(const char* from, const char* to,
                                                uint64_t block_bytes, int queue_blocks,
                                                double on_us, double off_us);
/* Queues no more blocks; those that are queued are still copied. Ignores unknown ids. */
POLYPATH_SIM_API void polypath_sim_traffic_stop(int id);
/* Blocks copied so far; 0 for an unknown id. */
POLYPATH_SIM_API uint64_t polypath_sim_traffic_blocks(int id);
/* Blocks queued now, the one in service included; 0 for an unknown id. */
POLYPATH_SIM_API int polypath_sim_traffic_queued(int id);

/* What completed copies moved over the link between two memories ("gpu0", "host0") since the start
 * or the last reset. 0 where there is no such link. */
POLYPATH_SIM_API uint64_t polypath_sim_link_bytes(const char* from, const char* to);
POLYPATH_SIM_API uint64_t polypath_sim_link_copies(const char* from, const char* to);

/* Copies issued, and those among them that the driver had to carry through host memory (no link, or
 * no peer access) or that had pageable memory on a side, since the start or the last reset. */
POLYPATH_SIM_API uint64_t polypath_sim_copies(void);
POLYPATH_SIM_API uint64_t polypath_sim_bounced_copies(void);
POLYPATH_SIM_API uint64_t polypath_sim_pageable_copies(void);

/* Since the start or the last reset: instantiated graphs that were destroyed, or nodes of them that
 * were given new parameters, while a launch was under way, which CUDA allows and a careful program
 * does not do; and launches refused because memory of a node is no longer what it was. */
POLYPATH_SIM_API uint64_t polypath_sim_graphs_modified_in_flight(void);
POLYPATH_SIM_API uint64_t polypath_sim_stale_graph_launches(void);

/* How many contexts were being made at once, at most, since the start or the last reset. */
POLYPATH_SIM_API uint64_t polypath_sim_contexts_at_once(void);

/* Sets these counts to zero. */
POLYPATH_SIM_API void polypath_sim_reset_counters(void);

/* From now on no context is made before `count` threads make one at the same time; once they do, or
 * with a count of 0, none is held. After POLYPATH_SIM_TIMEOUT a thread goes on alone. */
POLYPATH_SIM_API void polypath_sim_hold_contexts(int count);

/* From now on the primary context of the GPU behaves as after a kernel that failed with `result` (a
 * CUresult): calls in it return that until the end. Only 0 takes it back, which no GPU can. */
POLYPATH_SIM_API void polypath_sim_fail_context(int gpu, int result);

/* Objects that exist now, for leak tests: contexts (primary ones that are retained, too), streams,
 * events, allocations and registrations, graphs, instantiated graphs. */
POLYPATH_SIM_API uint64_t polypath_sim_live_contexts(void);
POLYPATH_SIM_API uint64_t polypath_sim_live_streams(void);
POLYPATH_SIM_API uint64_t polypath_sim_live_events(void);
POLYPATH_SIM_API uint64_t polypath_sim_live_allocations(void);
POLYPATH_SIM_API uint64_t polypath_sim_live_graphs(void);
POLYPATH_SIM_API uint64_t polypath_sim_live_graph_execs(void);

/* Nodes of a graph (a CUgraph); 0 for an unknown one. */
POLYPATH_SIM_API uint64_t polypath_sim_graph_nodes(void* graph);

/* Reads device memory past the API, without time and without order, e.g. to see that a copy has not
 * arrived too early. Returns 0, or -1 when the range is not wholly inside one allocation. */
POLYPATH_SIM_API int polypath_sim_peek(uint64_t address, void* bytes, uint64_t count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* POLYPATH_SIM_H */
