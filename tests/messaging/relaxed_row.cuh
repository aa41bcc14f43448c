// Test kernels: a warp, a block, or all blocks in phases match without a source wildcard, or
// without order.
#pragma once

#include "polypath/device/grid_relaxed.cuh"
#include "relaxed_row.h"
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
SIMT_DEVICE_CALLED void run_relaxed(const Members& members, const RelaxedRow& row) {
  using Matcher = device::matcher<Order, kCapacity>;
  auto& memory = *simt::dynamic_shared<typename Matcher::storage>();
  if (row.first.message_of_receive != nullptr) {
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
    run_relaxed<Order, kCapacity>(simt::Warp{}, row);
  else
    run_relaxed<Order, kCapacity>(simt::Block{}, row);
}

SIMT_KERNEL(polypath_test_partitioned, 256, RelaxedRow row) {
  run_relaxed<device::partitioned, 512>(row);
}
SIMT_KERNEL(polypath_test_hashed, 256, RelaxedRow row) { run_relaxed<device::hashed, 256>(row); }
SIMT_KERNEL(polypath_test_hashed_unique, 256, RelaxedRow row) {
  run_relaxed<device::hashed_unique, 256>(row);
}

struct SplitWords {
  std::uint32_t all[256 / 32 * device::split_memory::kWarpWords];
};
SIMT_KERNEL(polypath_test_split, 256, device::split_view view, device::match_outcome* outcome,
            unsigned phase) {
  SIMT_SHARED(SplitWords, words);
  if (phase < device::partitioned_workspace::kOfSplit)
    device::run_split_phase(view, phase, words.all);
  else if (simt::block_index() == 0 && simt::thread_index() == 0)
    device::detail::store_outcome(outcome, device::detail::outcome_of(view.words, view.batch));
}

/// All phases, as a matcher runs them.
SIMT_KERNEL(polypath_test_grid_partitioned, 256, GridRow row, unsigned phase) {
  using Matcher = device::grid_matcher<device::partitioned>;
  SIMT_SHARED(SplitWords, words);
  if (phase < Matcher::kPhases)
    Matcher::run(phase, words.all + simt::warp_index() * Matcher::kWarpWords, row.workspace,
                 row.capacity, row.batch);
  else if (simt::block_index() == 0 && simt::thread_index() == 0)
    device::detail::store_outcome(row.outcome,
                                  Matcher::outcome(row.workspace, row.capacity, row.batch));
}

/// What comes behind the split, by blocks that run at once.
SIMT_KERNEL(polypath_test_grid_rest, 256, GridRow row) {
  SIMT_SHARED(SplitWords, words);
  using Matcher = device::grid_matcher<device::partitioned>;
  const device::match_outcome outcome = Matcher::run_rest(
      words.all + simt::warp_index() * device::grid_matcher<device::mpi>::kWarpWords, row.workspace,
      row.capacity, row.batch);
  if (simt::block_index() == 0 && simt::thread_index() == 0)
    device::detail::store_outcome(row.outcome, outcome);
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
