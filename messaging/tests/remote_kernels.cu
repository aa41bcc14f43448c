// Kernels that push to queues and pairs of other GPUs and of the CPU, and pop from them.
#include "polypath/device/ll128.cuh"
#include "queue_run.cuh"
#include "remote_kernels.h"

namespace polypath::test {

template <typename Group, unsigned kWords, unsigned kItems, typename Layout = device::ll>
SIMT_DEVICE_NOINLINE void run_remote(const QueueRow& row, bool pushes) {
  using Run = QueueRun<Group, kWords, kItems, device::system_scope, Layout>;
  if (pushes)
    Run::push(row);
  else
    Run::pop(row);
}
SIMT_DEVICE void run_remote(const RemoteRow& row, bool pushes) {
  const QueueRow& queue = row.queue;
  if (row.is_line)
    run_remote<simt::this_warp, 30, 1, device::ll128>(queue, pushes);
  else if (queue.words == 3 && queue.members == Members::thread)
    run_remote<simt::this_thread, 3, 1>(queue, pushes);
  else if (queue.words == 3 && queue.items == 1)
    run_remote<simt::this_warp, 3, 1>(queue, pushes);
  else if (queue.words == 3)
    run_remote<simt::this_warp, 3, 2>(queue, pushes);
  else if (queue.words == 5)
    run_remote<simt::this_warp, 5, 1>(queue, pushes);
  else if (queue.words == 24)
    run_remote<simt::this_warp, 24, 1>(queue, pushes);
}

SIMT_DEVICE void run_remote_pair(const RemotePairRow& row, bool pushes) {
  if (row.is_line)
    run_pair<simt::this_warp, 30, 1, device::system_scope, device::ll128>(row.pair, pushes);
  else if (row.pair.members == Members::block)
    run_pair<simt::this_block, 3, 2, device::system_scope>(row.pair, pushes);
  else if (row.pair.words == 3)
    run_pair<simt::this_warp, 3, 2, device::system_scope>(row.pair, pushes);
  else
    run_pair<simt::this_warp, 24, 1, device::system_scope>(row.pair, pushes);
}

SIMT_KERNEL(polypath_test_remote_pushes, 256, RemoteRow row) { run_remote(row, true); }
SIMT_KERNEL(polypath_test_remote_pops, 256, RemoteRow row) { run_remote(row, false); }
SIMT_KERNEL(polypath_test_remote_close, 32, device::queue_view view) {
  using Queue = device::queue<std::uint32_t, device::system_scope>;
  if (simt::thread_index() == 0) Queue(view).close();
}
SIMT_KERNEL(polypath_test_remote_pair_pushes, 256, RemotePairRow row) {
  run_remote_pair(row, true);
}
SIMT_KERNEL(polypath_test_remote_pair_pops, 256, RemotePairRow row) { run_remote_pair(row, false); }

SIMT_KERNEL(polypath_test_rest, 32, std::uint32_t us) { simt::sleep_ns(us * 1000); }

SIMT_KERNEL(polypath_test_rings_pops, 32, RingsRow row) {
  const simt::this_warp warp{};
  unsigned open = (1U << row.count) - 1;
  PoppedItem* out[RingsRow::kMaxSources];
  for (unsigned ring = 0; ring < row.count; ++ring) out[ring] = row.popped + ring * row.room;
  while (open != 0) {
    bool found_some = false;
    for (unsigned ring = 0; ring < row.count; ++ring) {
      if ((open >> ring & 1U) == 0) continue;
      const device::queue<Item<3>, device::system_scope> queue(row.rings[ring]);
      Item<3> item;
      const device::status result = queue.try_pop(warp, item);
      const bool got = result == device::status::done;
      // Items of lower ranks come first: what is written down is packed, however few came at once.
      if (got && out[ring] + warp.rank() < row.popped + (ring + 1) * row.room)
        write_down(out[ring] + warp.rank(), item, true, result);
      const unsigned count = device::countr_one(simt::warp_ballot(got));
      if (count != 0) {
        found_some = true;
        out[ring] += count;
      } else if (simt::warp_any(result == device::status::closed)) {
        open &= ~(1U << ring);
      }
    }
    if (!found_some && open != 0) {
      if (warp.is_leader()) simt::spin_pause();
      warp.sync();
    }
  }
}

}  // namespace polypath::test
