// Splits messages and receives of many sources into partitions, by the whole GPU, in phases:
//
//   begin_split       no partition has any yet
//   rank_elements     counts each into its partition, and has its rank there
//   give_out_places   where each partition begins
//   move_elements     puts each there
//
// The ranks are in the order in which threads came. So elements carry their numbers, and whoever
// takes a partition puts it in order (match_mixed.cuh): that is done in registers, and a stable
// sort of all would take two passes over memory. All threads of a grid call each, with the same
// arguments.
#pragma once

#include <cstdint>

#include "polypath/device/grid_meeting.cuh"
#include "polypath/device/match_checks.cuh"
#include "polypath/device/planted.hpp"
#include "polypath/device/platform.cuh"
#include "polypath/device/split_view.hpp"

namespace polypath::device {

/// Defects of splitting (planted.hpp).
enum class SplitFault {
  none,
  in_no_order,        ///< a partition is matched as its elements came there
  long_in_no_order,   ///< the same of one that a block takes
  places_given_twice  ///< partitions begin in the same place
};

namespace detail {

/// Calls `work(index, envelope)` for several elements of a side at once: first all are loaded, then
/// `begin(i, index, envelope)` is called for each, then `end(i, index, envelope)`.
template <unsigned kTogether, typename Begin, typename End>
POLYPATH_DEVICE void for_elements(const split_view& view, unsigned side, const Begin& begin,
                                  const End& end) {
  const WholeGrid grid;
  const std::uint32_t count = view.count(side);
  const envelope* const from = view.from(side);
  for (std::uint32_t first = grid.rank(); first < count; first += kTogether * grid.size()) {
    envelope found[kTogether];
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) {
      const std::uint32_t index = first + i * grid.size();
      found[i] = index < count ? load(from + index) : envelope{};
    }
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) {
      const std::uint32_t index = first + i * grid.size();
      if (index < count) begin(i, index, found[i]);
    }
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) {
      const std::uint32_t index = first + i * grid.size();
      if (index < count) end(i, index, found[i]);
    }
  }
}

}  // namespace detail

POLYPATH_DEVICE void begin_split(const split_view& view) {
  const detail::WholeGrid grid;
  if (grid.rank() == 0) detail::begin_words(view.words, 0);
  for (std::uint32_t i = grid.rank(); i < view.partitions(); i += grid.size()) {
    store(view.counts[0] + i, 0U);
    store(view.counts[1] + i, 0U);
  }
}

/// Looks also for what must not be matched in `Order`.
template <typename Order>
POLYPATH_DEVICE void rank_elements(const split_view& view) {
  constexpr unsigned kTogether = 8;
  POLYPATH_NO_UNROLL
  for (unsigned side = 0; side < 2; ++side) {
    std::uint32_t* const counts = split_view::of_side(view.counts, side);
    std::uint32_t* const ranks = split_view::of_side(view.ranks, side);
    std::uint32_t own[kTogether];
    detail::for_elements<kTogether>(
        view, side,
        [&](unsigned i, std::uint32_t, const envelope& found) {
          own[i] = fetch_add<device_scope>(counts + split_view::partition_of(found, view.bits), 1U);
        },
        [&](unsigned i, std::uint32_t index, const envelope& found) {
          store(ranks + index, own[i]);
          const match_status status = side == 0 ? detail::status_of_message(found)
                                                : detail::status_of_receive(Order{}, found);
          if (status != match_status::done)
            detail::note_bad(&view.words->bad, side != 0, index, status);
        });
  }
}

/// Notes, where all may be matched, which partitions are too long for a warp, and whether one is
/// too long for a block of this size. `words`: of the block, two for each warp.
POLYPATH_DEVICE void give_out_places(const split_view& view, std::uint32_t* words) {
  const bool is_bad = load(&view.words->bad) != kNothingBad;
  for (std::uint32_t first = block_index() * block_size(); first < view.partitions();
       first += grid_size() * block_size()) {
    const std::uint32_t partition = first + thread_index();
    const bool is_one = partition < view.partitions();
    const std::uint32_t messages = is_one ? load(view.counts[0] + partition) : 0;
    const std::uint32_t receives = is_one ? load(view.counts[1] + partition) : 0;
    const std::uint64_t begin =
        detail::share_out(words, &view.words->given_out, messages | std::uint64_t{receives} << 32);
    if (is_one) {
      const bool is_wrong = planted(SplitFault::places_given_twice);
      store(view.begins[0] + partition, is_wrong ? 0 : static_cast<std::uint32_t>(begin));
      store(view.begins[1] + partition, is_wrong ? 0 : static_cast<std::uint32_t>(begin >> 32));
    }
    if (is_bad || messages == 0 || receives == 0) continue;
    const std::uint32_t most = messages < receives ? receives : messages;
    if (most > split_view::most_of_block(block_size() / kWarp))
      store_relaxed<device_scope>(&view.words->is_long, 1U);
    else if (most > split_view::kMostOfWarp)
      store(view.noted + fetch_add<device_scope>(&view.words->noted, 1U), partition);
  }
}

POLYPATH_DEVICE void move_elements(const split_view& view) {
  constexpr unsigned kTogether = 8;
  POLYPATH_NO_UNROLL
  for (unsigned side = 0; side < 2; ++side) {
    const std::uint32_t* const begins = split_view::of_side(view.begins, side);
    const std::uint32_t* const ranks = split_view::of_side(view.ranks, side);
    numbered* const to = split_view::of_side(view.split, side);
    std::uint32_t places[kTogether];
    detail::for_elements<kTogether>(
        view, side,
        [&](unsigned i, std::uint32_t index, const envelope& found) {
          places[i] =
              load(begins + split_view::partition_of(found, view.bits)) + load(ranks + index);
        },
        [&](unsigned i, std::uint32_t index, const envelope& found) {
          store(to + places[i], numbered{found, index, 0});
        });
  }
}

}  // namespace polypath::device
