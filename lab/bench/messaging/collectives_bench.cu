// Kernels that meet those of other ranks.
#include "collectives_bench.h"
#include "polypath/device/collectives.cuh"
#include "simt/platform.cuh"

namespace messaging_bench {

template <typename Members>
SIMT_DEVICE void run_collectives(const CollectiveRun& run, const polypath::device::collectives& all,
                                 const Members& group) {
  using polypath::device::status;
  for (std::uint32_t round = 0; round < run.rounds; ++round) {
    const status result = run.count == 0 ? all.barrier(group)
                                         : all.all_reduce<polypath::device::plus>(
                                               group, run.send, run.recv, run.count);
    if (result != status::done) return;
  }
}

SIMT_KERNEL(polypath_bench_collectives_block, 512, CollectiveRun run) {
  run_collectives(run, polypath::device::collectives(run.view), polypath::device::this_block{});
}
SIMT_KERNEL(polypath_bench_collectives_grid, 512, CollectiveRun run) {
  const polypath::device::collectives all(run.view);
  run_collectives(run, all, all.grid());
}

}  // namespace messaging_bench
