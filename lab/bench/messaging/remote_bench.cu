// Kernels that push to another GPU or to the CPU as fast as they can, or pop what came from there,
// and check each item.
#include "polypath/device/ll128.cuh"
#include "queue_runs.cuh"
#include "remote_bench.h"

namespace messaging_bench {

#define POLYPATH_REMOTE_RUN(name, words, items, layout)                                  \
  SIMT_KERNEL(polypath_bench_remote_##name, 512, QueueRun run) {                         \
    run_queue<simt::this_warp, words, items, device::system_scope, device::layout>(run); \
  }
POLYPATH_REMOTE_RUN(3_1, 3, 1, ll)
POLYPATH_REMOTE_RUN(3_4, 3, 4, ll)
POLYPATH_REMOTE_RUN(24_1, 24, 1, ll)
POLYPATH_REMOTE_RUN(line, 30, 1, ll128)
#undef POLYPATH_REMOTE_RUN

SIMT_KERNEL(polypath_bench_remote_queue_trips, 32, SideOfTrips trips) {
  if (simt::thread_index() == 0)
    run_queue_trips<device::system_scope>(trips.queue_to, trips.queue_from, trips.begins != 0,
                                          trips.rounds, trips.tally);
}
SIMT_KERNEL(polypath_bench_remote_pair_trips, 32, SideOfTrips trips) {
  if (simt::thread_index() == 0)
    run_pair_trips<device::system_scope>(trips.pair_to, trips.pair_from, trips.begins != 0,
                                         trips.rounds, trips.tally);
}

SIMT_KERNEL(polypath_bench_host_pair_push, 512, HostPairRun run) {
  device::spsc_producer<Item<3>, device::system_scope> pair(run.view);
  push_pair<3, 4>(pair, simt::this_block{}, run.first, run.calls);
}
SIMT_KERNEL(polypath_bench_host_pair_pop, 512, HostPairRun run) {
  device::spsc_consumer<Item<3>, device::system_scope> pair(run.view);
  pop_pair<3, 4>(pair, simt::this_block{}, run.first, run.calls, run.tally);
}

}  // namespace messaging_bench
