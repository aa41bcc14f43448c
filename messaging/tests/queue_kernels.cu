// Kernels that push to queues and pairs of one GPU, and pop.
#include "queue_run.cuh"

namespace polypath::test {

template <typename Group, unsigned kWords, unsigned kItems>
SIMT_DEVICE_NOINLINE void run_queue(const QueueRow& row, bool pushes) {
  if (pushes)
    QueueRun<Group, kWords, kItems>::push(row);
  else
    QueueRun<Group, kWords, kItems>::pop(row);
}
template <typename Group, unsigned kWords>
SIMT_DEVICE void run_queue(const QueueRow& row, bool pushes) {
  if (row.items == 1) run_queue<Group, kWords, 1>(row, pushes);
  if (row.items == 2) run_queue<Group, kWords, 2>(row, pushes);
}
template <typename Group>
SIMT_DEVICE void run_queue(const QueueRow& row, bool pushes) {
  if (row.words == 2) run_queue<Group, 2>(row, pushes);
  if (row.words == 3) run_queue<Group, 3>(row, pushes);
  if (row.words == 5) run_queue<Group, 5>(row, pushes);
  if (row.words == 10) run_queue<Group, 10>(row, pushes);
  if (row.words == 24) run_queue<Group, 24>(row, pushes);
}
SIMT_DEVICE void run_queue(const QueueRow& row, bool pushes) {
  if (row.members == Members::thread) run_queue<simt::this_thread>(row, pushes);
  if (row.members == Members::warp) run_queue<simt::this_warp>(row, pushes);
  if (row.members == Members::block) run_queue<simt::this_block>(row, pushes);
}

template <typename Group>
SIMT_DEVICE void run_pair(const PairRow& row, bool pushes) {
  if (row.words == 3 && row.items == 1) run_pair<Group, 3, 1>(row, pushes);
  if (row.words == 3 && row.items == 2) run_pair<Group, 3, 2>(row, pushes);
  if (row.words == 24 && row.items == 1) run_pair<Group, 24, 1>(row, pushes);
  if (row.words == 24 && row.items == 2) run_pair<Group, 24, 2>(row, pushes);
}

SIMT_DEVICE void run_pair(const PairRow& row, bool pushes) {
  if (row.members == Members::thread) run_pair<simt::this_thread>(row, pushes);
  if (row.members == Members::warp) run_pair<simt::this_warp>(row, pushes);
  if (row.members == Members::block) run_pair<simt::this_block>(row, pushes);
}

SIMT_KERNEL(polypath_test_pushes, 256, QueueRow row) { run_queue(row, true); }
SIMT_KERNEL(polypath_test_pops, 256, QueueRow row) { run_queue(row, false); }
SIMT_KERNEL(polypath_test_close, 32, device::queue_view view) {
  if (simt::thread_index() == 0) device::queue<std::uint32_t>(view).close();
}
SIMT_KERNEL(polypath_test_pair_pushes, 256, PairRow row) { run_pair(row, true); }
SIMT_KERNEL(polypath_test_pair_pops, 256, PairRow row) { run_pair(row, false); }
/// Four pushes of one item a thread, one of two, one of one.
SIMT_KERNEL(polypath_test_pair_small_push_last, 32, device::spsc_view view,
            std::uint32_t* results) {
  const simt::this_warp warp{};
  device::spsc_producer<Item<3>> pair(view);
  const Item<3> items[2]{};
  for (unsigned call = 0; call < 6; ++call) {
    const device::status result = call == 4 ? pair.push(warp, items) : pair.push(warp, items[0]);
    if (warp.is_leader()) simt::store(results + call, static_cast<std::uint32_t>(result));
  }
}

}  // namespace polypath::test
