// Splits messages and receives of many sources into partitions, by the whole GPU, in phases:
//
//   begin_split       no partition has any yet
//   scatter_to_partitions    counts each into its partition, and puts it into the partition's room
//   assign_partition_offsets   if a room was too small: where each partition lies
//   gather_partitions     if a room was too small: puts each there
//
// What is put is an index. They are in the order in which threads came; the warp or block that
// takes a partition sorts its indices (grid_partitioned.cuh): that is done in registers, and a
// stable sort of all would take two passes over memory. All threads of a grid call each, with the
// same arguments.
#pragma once

#include <cstdint>

#include "polypath/device/detail/batch_checks.cuh"
#include "polypath/device/detail/grid_barrier.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/source_partition_view.hpp"
#include "polypath/device/platform.cuh"

namespace polypath::device {

namespace detail {

/// Where a partition lies of a batch that is not crowded.
POLYPATH_DEVICE std::uint32_t room_of(std::uint32_t partition) {
  POLYPATH_MUTANT(split_mutant::rooms_given_twice, return 0)
  return partition * split_view::kRoom;
}

/// Each element adds one to its partition's counter: calls `look(side, envelope)` before, and
/// after it `work(side, index, partition, before)`, with what was there before. Several of both
/// sides at once, so that much is under way.
template <unsigned kTogether, typename Look, typename Work>
POLYPATH_DEVICE void count_elements(const split_view& view, std::uint32_t* const (&counters)[2],
                                    const Look& look, const Work& work) {
  const whole_grid grid;
  const unsigned lane = rank_in_warp();
  const std::uint32_t most = view.count(0) < view.count(1) ? view.count(1) : view.count(0);
  // Where a warp's elements are all of one partition, as where there are few, one adds for all.
  const auto is_of_all = [](std::uint32_t partition) {
    return warp_all(partition == warp_shuffle(partition, 0));
  };
  for (std::uint32_t first = grid.rank(); first - lane < most; first += kTogether * grid.size()) {
    envelope envelopes[2][kTogether];
    std::uint32_t before[2][kTogether];
    const auto for_each = [&](const auto& then) {
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kTogether; ++i) {
        POLYPATH_UNROLL
        for (unsigned side = 0; side < 2; ++side) {
          const std::uint32_t index = first + i * grid.size();
          then(side, index, index < view.count(side), envelopes[side][i], before[side][i]);
        }
      }
    };
    const auto partition_of = [&](bool is_one, const envelope& what) {
      return is_one ? split_view::partition_of(what, view.bits) : kNone;
    };
    for_each([&](unsigned side, std::uint32_t index, bool is_one, envelope& what, std::uint32_t&) {
      what = is_one ? load(view.from(side) + index) : envelope{};
    });
    for_each([&](unsigned side, std::uint32_t, bool is_one, const envelope& what,
                 std::uint32_t& position) {
      look(side, what);
      const std::uint32_t partition = partition_of(is_one, what);
      const bool for_all = is_of_all(partition);
      position = 0;
      unsigned arrivals = for_all ? kWarp : 1U;
      POLYPATH_MUTANT(split_mutant::warp_counts_as_one, arrivals = 1)
      if (is_one && (!for_all || lane == 0))
        position = device::fetch_add<device_scope>(counters[side] + partition, arrivals);
    });
    for_each([&](unsigned side, std::uint32_t index, bool is_one, const envelope& what,
                 std::uint32_t position) {
      const std::uint32_t partition = partition_of(is_one, what);
      if (is_of_all(partition)) position = warp_shuffle(position, 0) + lane;
      if (is_one) work(side, index, partition, position);
    });
  }
}

template <typename Order>
POLYPATH_DEVICE match_status status_of(unsigned side, const envelope& what) {
  return side == 0 ? status_of_message(what) : status_of_receive(Order{}, what);
}
/// Handles the elements that count_elements() gives this thread. It is a call: seldom needed.
template <typename Order>
POLYPATH_DEVICE_NOINLINE void note_own_bad(split_view view) {
  const whole_grid grid;
  for (unsigned side = 0; side < 2; ++side)
    for (std::uint32_t i = grid.rank(); i < view.count(side); i += grid.size()) {
      const match_status status = status_of<Order>(side, load(view.from(side) + i));
      if (status != match_status::done) note_bad(&view.words->bad, side != 0, i, status);
    }
}

}  // namespace detail

POLYPATH_DEVICE void begin_split(const split_view& view) {
  const detail::whole_grid grid;
  if (grid.rank() == 0) detail::begin_words(view.words, 0);
  for (std::uint32_t i = grid.rank(); i < view.partitions(); i += grid.size()) {
    store(view.counts[0] + i, 0U);
    store(view.counts[1] + i, 0U);
  }
}

/// Looks also for what must not be matched in `Order`, and notes whether a room is too small.
template <typename Order>
POLYPATH_DEVICE void scatter_to_partitions(const split_view& view) {
  constexpr unsigned kTogether = 4;
  bool is_bad = false;
  detail::count_elements<kTogether>(
      view, view.counts,
      [&](unsigned side, const envelope& what) {
        is_bad |= detail::status_of<Order>(side, what) != match_status::done;
      },
      [&](unsigned side, std::uint32_t index, std::uint32_t partition, std::uint32_t rank) {
        if (rank < split_view::kRoom)
          return store(view.split[side] + detail::room_of(partition) + rank, index);
        POLYPATH_MUTANT_OMITS(split_mutant::crowded_unnoticed)
        if (rank == split_view::kRoom) store_relaxed<device_scope>(&view.words->is_crowded, 1U);
      });
  if (is_bad) detail::note_own_bad<Order>(view);
}

/// Notes also which partitions are too long for a warp, and whether one is too long for a block of
/// this size. `words`: of the block, two for each warp.
POLYPATH_DEVICE void assign_partition_offsets(const split_view& view, std::uint32_t* words) {
  for (std::uint32_t first = block_index() * block_size(); first < view.partitions();
       first += grid_size() * block_size()) {
    const std::uint32_t partition = first + thread_index();
    const bool is_one = partition < view.partitions();
    const std::uint32_t messages = is_one ? load(view.counts[0] + partition) : 0;
    const std::uint32_t receives = is_one ? load(view.counts[1] + partition) : 0;
    std::uint64_t begin =
        detail::share_out(words, &view.words->given_out, messages | std::uint64_t{receives} << 32);
    if (!is_one) continue;
    POLYPATH_MUTANT(split_mutant::places_given_twice, begin = 0)
    store(view.ends[0] + partition, static_cast<std::uint32_t>(begin));
    store(view.ends[1] + partition, static_cast<std::uint32_t>(begin >> 32));
    if (messages == 0 || receives == 0) continue;
    const std::uint32_t most = messages < receives ? receives : messages;
    if (most > split_view::max_of_block(block_size() / kWarp))
      store_relaxed<device_scope>(&view.words->is_long, 1U);
    else if (most > split_view::kMaxPerWarp)
      store(view.noted + fetch_add<device_scope>(&view.words->noted, 1U), partition);
  }
}

/// Each moves its partition's end by one.
POLYPATH_DEVICE void gather_partitions(const split_view& view) {
  constexpr unsigned kTogether = 4;
  detail::count_elements<kTogether>(
      view, view.ends, [](unsigned, const envelope&) {},
      [&](unsigned side, std::uint32_t index, std::uint32_t, std::uint32_t place) {
        store(view.split[side] + place, index);
      });
}

}  // namespace polypath::device
