// Test kernels: a warp, a block, or all blocks in phases match without a source wildcard, or
// without order.
#include "polypath/device/grid_relaxed.cuh"
#include "relaxed_kernels.h"
#include "simt/platform.cuh"

namespace polypath::test {

template <typename Order, typename Matcher, typename Members>
SIMT_DEVICE device::match_outcome match_once(const Members& members,
                                             typename Matcher::storage& memory,
                                             const device::match_batch& batch, std::uint64_t seed) {
  if constexpr (std::is_same<Order, device::partitioned>::value)
    return Matcher::match(members, memory, batch);
  else
    return Matcher::match(members, memory, batch, seed);
}

template <typename Order, unsigned kCapacity, typename Members>
SIMT_DEVICE_NOINLINE void run_relaxed(const Members& members, const RelaxedRow& row) {
  using Matcher = device::matcher<Order, kCapacity>;
  auto& memory = *simt::dynamic_shared<typename Matcher::storage>();
  if (row.first.matched_message != nullptr) {
    match_once<Order, Matcher>(members, memory, row.first, row.seed);
    members.sync();
  }
  const device::match_outcome outcome =
      match_once<Order, Matcher>(members, memory, row.batch, row.seed);
  if (members.is_leader()) device::detail::store_outcome(row.outcome, outcome);
}
template <typename Order, unsigned kCapacity>
SIMT_DEVICE void run_relaxed(const RelaxedRow& row) {
  if (row.by_warp)
    run_relaxed<Order, kCapacity>(simt::this_warp{}, row);
  else
    run_relaxed<Order, kCapacity>(simt::this_block{}, row);
}

SIMT_KERNEL(polypath_test_partitioned, 256, RelaxedRow row) {
  run_relaxed<device::partitioned, 512>(row);
}
SIMT_KERNEL(polypath_test_hashed, 256, RelaxedRow row) { run_relaxed<device::hashed, 256>(row); }
SIMT_KERNEL(polypath_test_hashed_unique, 256, RelaxedRow row) {
  run_relaxed<device::hashed_unique, 256>(row);
}

struct SplitWords {
  std::uint32_t all[256 / 32 * device::kWordsOfPartition];
};
SIMT_KERNEL(polypath_test_split, 256, device::split_view view, device::match_outcome* outcome,
            unsigned phase) {
  SIMT_SHARED(SplitWords, words);
  if (phase < device::partitioned_workspace::kOfSplit)
    device::run_split_phase(view, phase, words.all);
  else if (simt::block_index() == 0 && simt::thread_index() == 0)
    device::detail::store_outcome(outcome, device::detail::outcome_of(view.words, view.batch));
}

/// All phases, as a matcher runs them: a launch each, or all by blocks that run at once.
template <typename Order>
SIMT_DEVICE void run_grid_phase(const GridRow& row, unsigned phase) {
  using Matcher = device::grid_matcher<Order>;
  SIMT_SHARED(SplitWords, words);
  if (phase < Matcher::kPhases)
    Matcher::run(phase, words.all + simt::warp_index() * Matcher::kWarpWords, row.workspace,
                 row.capacity, row.batch);
  else if (simt::block_index() == 0 && simt::thread_index() == 0)
    device::detail::store_outcome(row.outcome,
                                  Matcher::outcome(row.workspace, row.capacity, row.batch));
}
template <typename Order>
SIMT_DEVICE void run_grid_together(const GridRow& row) {
  using Matcher = device::grid_matcher<Order>;
  SIMT_SHARED(SplitWords, words);
  device::match_outcome outcome{};
  if (Matcher::match_together(row.meetings, words.all + simt::warp_index() * Matcher::kWarpWords,
                              row.workspace, row.capacity, row.batch, outcome))
    device::detail::store_outcome(row.outcome, outcome);
}
SIMT_KERNEL(polypath_test_grid_partitioned, 256, GridRow row, unsigned phase) {
  run_grid_phase<device::partitioned>(row, phase);
}
SIMT_KERNEL(polypath_test_grid_mpi, 256, GridRow row, unsigned phase) {
  run_grid_phase<device::mpi>(row, phase);
}
SIMT_KERNEL(polypath_test_together_partitioned, 256, GridRow row) {
  run_grid_together<device::partitioned>(row);
}
SIMT_KERNEL(polypath_test_together_mpi, 256, GridRow row) { run_grid_together<device::mpi>(row); }

/// Blocks meet, and look at what all stored: `words` has one for each thread, `wrong` counts those
/// that are not as they should be, `ends` the blocks that come last.
SIMT_KERNEL(polypath_test_meeting, 64, MeetingRow row) {
  const device::detail::grid_barrier all(row.meetings);
  const unsigned threads = simt::grid_size() * simt::block_size();
  const unsigned rank = simt::block_index() * simt::block_size() + simt::thread_index();
  std::uint32_t wrong = 0;
  for (std::uint32_t round = 1; round <= 3; ++round) {
    simt::store(row.words + rank, round);
    all.meet();
    for (unsigned i = 0; i < threads; ++i) wrong += simt::load(row.words + i) != round ? 1 : 0;
    all.meet();
  }
  simt::store(row.words + rank, 4U);
  if (all.is_last()) {
    for (unsigned i = 0; i < threads; ++i) wrong += simt::load(row.words + i) != 4 ? 1 : 0;
    if (simt::thread_index() == 0) simt::fetch_add<device::device_scope>(row.ends, 1U);
  }
  if (wrong != 0) simt::fetch_add<device::device_scope>(row.wrong, wrong);
}

template <typename Order>
SIMT_DEVICE void run_table(const device::table_view& view, device::match_outcome* outcome,
                           unsigned phase) {
  SIMT_SHARED(device::match_sums, sums);
  if (phase < device::hashed_workspace::kPhases)
    device::run_table_phase<Order>(view, phase, sums);
  else if (simt::block_index() == 0 && simt::thread_index() == 0)
    device::detail::store_outcome(outcome, device::detail::outcome_of(view.words, view.batch));
}
SIMT_KERNEL(polypath_test_table, 256, device::table_view view, device::match_outcome* outcome,
            unsigned phase) {
  run_table<device::hashed>(view, outcome, phase);
}
SIMT_KERNEL(polypath_test_table_unique, 256, device::table_view view,
            device::match_outcome* outcome, unsigned phase) {
  run_table<device::hashed_unique>(view, outcome, phase);
}

}  // namespace polypath::test
