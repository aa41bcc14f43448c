// Kernels that push and pop on one GPU as fast as they can, and check each item.
#include "queue_runs.cuh"

namespace messaging_bench {

#define POLYPATH_QUEUE_RUN(team, words, items)                                      \
  SIMT_KERNEL(polypath_bench_queue_##team##_##words##_##items, 512, QueueRun run) { \
    run_queue<simt::this_##team, words, items>(run);                                \
  }
POLYPATH_QUEUE_RUN(thread, 3, 1)
POLYPATH_QUEUE_RUN(warp, 3, 1)
POLYPATH_QUEUE_RUN(warp, 3, 4)
POLYPATH_QUEUE_RUN(warp, 24, 1)
#undef POLYPATH_QUEUE_RUN

template <typename Members, unsigned kWords, unsigned kItems>
SIMT_DEVICE void run_pair(const PairRun& run, const Members& group, std::uint64_t own) {
  device::spsc_view view = run.view;
  view.cells += own * run.cell_bytes;
  view.credit += own * 16;
  view.sent += own * 16;
  view.received += own * 16;
  const std::uint64_t base = own * run.calls * kItems * group.size();
  if (simt::block_index() % 2 == 0) {
    device::spsc_producer<Item<kWords>> pair(view);
    push_pair<kWords, kItems>(pair, group, base, run.calls);
  } else {
    device::spsc_consumer<Item<kWords>> pair(view);
    pop_pair<kWords, kItems>(pair, group, base, run.calls, run.tally);
  }
}

template <unsigned kWords, unsigned kItems>
SIMT_DEVICE void run_pairs(const PairRun& run) {
  const std::uint64_t pair = simt::block_index() / 2;
  if (run.by_warp != 0) {
    const std::uint64_t warps = simt::block_size() / simt::kWarp;
    run_pair<simt::this_warp, kWords, kItems>(run, simt::this_warp{},
                                              pair * warps + simt::thread_index() / simt::kWarp);
  } else {
    run_pair<simt::this_block, kWords, kItems>(run, simt::this_block{}, pair);
  }
}

SIMT_KERNEL(polypath_bench_pairs_3_1, 512, PairRun run) { run_pairs<3, 1>(run); }
SIMT_KERNEL(polypath_bench_pairs_3_4, 512, PairRun run) { run_pairs<3, 4>(run); }
SIMT_KERNEL(polypath_bench_pairs_24_1, 512, PairRun run) { run_pairs<24, 1>(run); }

/// So long that calls of other threads end in between, or do not; as the number says.
SIMT_DEVICE void pause_for(std::uint32_t number) {
  const std::uint64_t until = simt::global_timer_ns() + (number * 0x9E3779B9U >> 19);
  simt::spin_until([] { return false; }, [&] { return simt::global_timer_ns() >= until; });
}

SIMT_KERNEL(polypath_bench_history, 512, HistoryRun run) {
  const simt::this_thread alone{};
  const device::queue<Item<3>> queue(run.queue.view);
  const std::uint64_t thread =
      std::uint64_t{simt::block_index()} * simt::block_size() + simt::thread_index();
  const std::uint64_t producers = std::uint64_t{run.queue.producers} * simt::block_size();
  const bool pushes = thread < producers;
  const std::uint32_t calls = pushes ? run.queue.calls : run.queue.pop_calls;
  Operation* out =
      run.operations +
      (pushes ? thread * calls : producers * run.queue.calls + (thread - producers) * calls);
  for (std::uint32_t call = 0; call < calls; ++call, ++out) {
    Item<3> item = make_item<3>(thread * calls + call);
    pause_for(static_cast<std::uint32_t>(thread * 977 + call));
    const std::uint64_t began = simt::global_timer_ns();
    const device::status result = pushes ? queue.push(alone, item) : queue.pop(alone, item);
    const std::uint64_t ended = simt::global_timer_ns();
    if (result != device::status::done) return;
    simt::store(&out->id, id_of(item));
    simt::store(&out->began, began);
    simt::store(&out->ended, ended);
  }
}

SIMT_KERNEL(polypath_bench_queue_trips, 32, RoundTrips trips) {
  const unsigned own = simt::block_index();
  if (simt::thread_index() == 0)
    run_queue_trips<device::device_scope>(trips.queues[own], trips.queues[1 - own], own == 0,
                                          trips.rounds, trips.tally);
}
SIMT_KERNEL(polypath_bench_pair_trips, 32, RoundTrips trips) {
  const unsigned own = simt::block_index();
  if (simt::thread_index() == 0)
    run_pair_trips<device::device_scope>(trips.pairs[own], trips.pairs[1 - own], own == 0,
                                         trips.rounds, trips.tally);
}

}  // namespace messaging_bench
