// Matching without a source wildcard by the whole GPU: one batch of many sources, split into
// partitions (source_partition.cuh), each of which a warp puts in order and matches; blocks take
// long ones.
#pragma once

#include <cstdint>

#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/sort.cuh"
#include "polypath/device/detail/source_partition.cuh"
#include "polypath/device/match_partitioned.cuh"

namespace polypath::device {

/// In shared memory, for each warp of a block.
inline constexpr unsigned kWordsOfPartition = 2 * split_view::kMaxPerWarp;

namespace detail {

/// Where a partition's indices lie; each side by itself.
struct partition_extent {
  std::uint32_t begins[2];
  std::uint32_t counts[2];

  [[nodiscard]] POLYPATH_DEVICE std::uint32_t most() const {
    return counts[0] < counts[1] ? counts[1] : counts[0];
  }
  [[nodiscard]] POLYPATH_DEVICE bool has_both() const { return counts[0] != 0 && counts[1] != 0; }
};
POLYPATH_DEVICE partition_extent extent_of(const split_view& view, std::uint32_t partition,
                                           bool is_crowded) {
  partition_extent extent{};
  POLYPATH_UNROLL
  for (unsigned side = 0; side < 2; ++side) {
    extent.counts[side] = load(view.counts[side] + partition);
    extent.begins[side] =
        is_crowded ? load(view.ends[side] + partition) - extent.counts[side] : room_of(partition);
  }
  return extent;
}
/// kNone where there is none.
POLYPATH_DEVICE std::uint32_t index_at(const split_view& view, const partition_extent& extent,
                                       unsigned side, std::uint32_t at) {
  return at < extent.counts[side] ? load(view.split[side] + extent.begins[side] + at) : kNone;
}

/// A partition that is in order, as message_window sees it.
class sorted_batch {
 public:
  /// `words`: indices in order, in shared memory of the group that takes it.
  POLYPATH_DEVICE sorted_batch(const match_batch& batch, const partition_extent& extent,
                               const std::uint32_t* messages, const std::uint32_t* receives)
      : of_(batch),
        messages_(messages),
        receives_(receives),
        message_count_(extent.counts[0]),
        receive_count_(extent.counts[1]) {}

  [[nodiscard]] POLYPATH_DEVICE std::uint32_t message_count() const { return message_count_; }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t receive_count() const { return receive_count_; }

  /// First of all, by all of a group.
  template <typename Group>
  POLYPATH_DEVICE void leave_messages_over(const Group& group) const {
    if (of_.matched_receive == nullptr) return;
    for (std::uint32_t i = group.rank(); i < message_count_; i += group.size())
      store(of_.matched_receive + messages_[i], kNone);
    group.sync();
  }

  [[nodiscard]] POLYPATH_DEVICE envelope message(std::uint32_t i) const {
    return load(of_.messages + messages_[i]);
  }
  [[nodiscard]] POLYPATH_DEVICE envelope receive(std::uint32_t i) const {
    return load(of_.receives + receives_[i]);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t match(std::uint32_t receive) const {
    return load(of_.matched_message + receives_[receive]);
  }
  POLYPATH_DEVICE void set_none(std::uint32_t receive) const {
    store(of_.matched_message + receives_[receive], kNone);
  }
  POLYPATH_DEVICE void set_match(std::uint32_t receive, std::uint32_t message) const {
    store(of_.matched_message + receives_[receive], messages_[message]);
    if (of_.matched_receive != nullptr)
      store(of_.matched_receive + messages_[message], receives_[receive]);
  }

 private:
  const match_batch& of_;
  const std::uint32_t* messages_;
  const std::uint32_t* receives_;
  std::uint32_t message_count_;
  std::uint32_t receive_count_;
};

/// One of 64 at most on each side, whose envelopes a warp loads all at once.
class short_batch : public sorted_batch {
 public:
  POLYPATH_DEVICE short_batch(const match_batch& batch, const partition_extent& extent,
                              const std::uint32_t* messages, const std::uint32_t* receives)
      : sorted_batch(batch, extent, messages, receives) {
    POLYPATH_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t i = half * kWarp + rank_in_warp();
      messages_[half] = i < extent.counts[0] ? sorted_batch::message(i) : envelope{};
      receives_[half] = i < extent.counts[1] ? sorted_batch::receive(i) : envelope{};
    }
  }
  /// The message with index `i` of the lane.
  [[nodiscard]] POLYPATH_DEVICE envelope message(std::uint32_t i) const {
    return i < kWarp ? messages_[0] : messages_[1];
  }
  [[nodiscard]] POLYPATH_DEVICE envelope receive(std::uint32_t i) const {
    return i < kWarp ? receives_[0] : receives_[1];
  }

 private:
  envelope messages_[2];
  envelope receives_[2];
};

/// `kEach` of each side in each lane of a warp, in any order.
template <unsigned kEach>
struct sorted_indices {
  std::uint32_t of_side[2][kEach];

  POLYPATH_DEVICE sorted_indices(const split_view& view, const partition_extent& extent) {
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kEach; ++i) {
      of_side[0][i] = index_at(view, extent, 0, i * kWarp + rank_in_warp());
      of_side[1][i] = index_at(view, extent, 1, i * kWarp + rank_in_warp());
    }
  }
  /// By a warp: into words of its own.
  POLYPATH_DEVICE void sort_into(std::uint32_t* messages, std::uint32_t* receives) {
    POLYPATH_MUTANT_OMITS(split_mutant::in_no_order)
    sort_in_warp(of_side);
    warp_sync();  // others may still read the words of the one before
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kEach; ++i) {
      unsigned at = rank_in_warp() * kEach + i;
      POLYPATH_MUTANT(split_mutant::in_no_order, at = i * kWarp + rank_in_warp())
      messages[at] = of_side[0][i];
      receives[at] = of_side[1][i];
    }
    warp_sync();
  }
};
constexpr unsigned kShort = 2;  // of a partition as most are, in each lane

/// By a warp, which has loaded what it has of a short one. Returns how many pairs this thread has
/// made.
POLYPATH_DEVICE std::uint32_t match_short(const split_view& view, const partition_extent& extent,
                                          sorted_indices<kShort>& indices, std::uint32_t* words) {
  std::uint32_t* const receives = words + split_view::kMaxPerWarp;
  indices.sort_into(words, receives);
  const short_batch batch(view.batch, extent, words, receives);
  batch.leave_messages_over(this_warp{});
  return message_window(batch, 0).meet(batch, 0, true);
}
/// Matches a larger partition. It is a call, as the functions below, so that the usual case has
/// the registers for itself.
POLYPATH_DEVICE_NOINLINE std::uint32_t match_more(split_view view, partition_extent extent,
                                                  std::uint32_t* words) {
  std::uint32_t* const receives = words + split_view::kMaxPerWarp;
  sorted_indices<split_view::kMaxPerWarp / kWarp>(view, extent).sort_into(words, receives);
  const sorted_batch batch(view.batch, extent, words, receives);
  batch.leave_messages_over(this_warp{});
  return match_windows(this_warp{}, batch);
}
/// One that has but one side, however many.
POLYPATH_DEVICE_NOINLINE void match_one_side(split_view view, partition_extent extent) {
  for (std::uint32_t i = rank_in_warp(); i < extent.counts[1]; i += kWarp)
    store(view.batch.matched_message + index_at(view, extent, 1, i), kNone);
  if (view.batch.matched_receive != nullptr)
    for (std::uint32_t i = rank_in_warp(); i < extent.counts[0]; i += kWarp)
      store(view.batch.matched_receive + index_at(view, extent, 0, i), kNone);
}

/// Blocks take the partitions that are too long for a warp.
POLYPATH_DEVICE_NOINLINE std::uint32_t match_noted(split_view view, std::uint32_t* words) {
  const this_block block;
  std::uint32_t* const receives = words + split_view::max_of_block(block_size() / kWarp);
  std::uint32_t pairs = 0;
  const std::uint32_t noted = load(&view.words->noted);
  for (std::uint32_t at = block_index(); at < noted; at += grid_size()) {
    const partition_extent extent = extent_of(view, load(view.noted + at), true);
    const std::uint32_t all = 1U << log2_above(extent.most());
    POLYPATH_NO_UNROLL
    for (unsigned side = 0; side < 2; ++side) {
      std::uint32_t* const to = side == 0 ? words : receives;
      for (std::uint32_t i = block.rank(); i < all; i += block.size())
        to[i] = index_at(view, extent, side, i);
      block.sync();
      POLYPATH_MUTANT_OMITS(split_mutant::long_in_no_order)
      sort_in_block(block, to, all);
    }
    block.sync();
    const sorted_batch batch(view.batch, extent, words, receives);
    batch.leave_messages_over(block);
    pairs += match_windows(block, batch);
    block.sync();  // the words may be used anew
  }
  return pairs;
}

/// By a warp, which takes each `step`-th partition from `first` on, but for what blocks take.
POLYPATH_DEVICE std::uint32_t match_by_warp(const split_view& view, std::uint32_t first,
                                            std::uint32_t step, bool is_crowded,
                                            std::uint32_t* words) {
  std::uint32_t pairs = 0;
  for (; first < view.partitions(); first += kWarp * step) {
    // Each lane looks at one of them.
    const std::uint32_t own = first + rank_in_warp() * step;
    const partition_extent lane_extent =
        own < view.partitions() ? extent_of(view, own, is_crowded) : partition_extent{};
    unsigned left =
        warp_ballot(lane_extent.most() != 0 &&
                    (lane_extent.most() <= split_view::kMaxPerWarp || !lane_extent.has_both()));
    // What the next one has is loaded while one is matched.
    const auto next_one = [&] {
      const unsigned lane = countr_one(~left & (left - 1));
      const bool is_one = left != 0;
      left &= left - 1;
      partition_extent extent{};
      POLYPATH_UNROLL
      for (unsigned side = 0; side < 2; ++side) {
        extent.begins[side] = warp_shuffle(lane_extent.begins[side], lane % kWarp);
        extent.counts[side] = is_one ? warp_shuffle(lane_extent.counts[side], lane % kWarp) : 0;
      }
      return extent;
    };
    partition_extent next = next_one();
    sorted_indices<kShort> indices_of_next(view, next);
    while (next.most() != 0) {
      const partition_extent extent = next;
      sorted_indices<kShort> indices = indices_of_next;
      next = next_one();
      indices_of_next = sorted_indices<kShort>(view, next);
      if (!extent.has_both())
        match_one_side(view, extent);
      else if (extent.most() > kShort * kWarp)
        pairs += match_more(view, extent, words);
      else
        pairs += match_short(view, extent, indices, words);
    }
  }
  return pairs;
}

}  // namespace detail

/// By blocks of the size that assign_partition_offsets() had. `words`: of the block,
/// kWordsOfPartition for each warp.
POLYPATH_DEVICE void match_partitions(const split_view& view, std::uint32_t* words) {
  static_assert(sizeof(match_sums) <= kWordsOfPartition * sizeof(std::uint32_t), "");
  const bool is_crowded = load(&view.words->is_crowded) != 0;
  std::uint32_t pairs = is_crowded ? detail::match_noted(view, words) : 0;
  pairs += detail::match_by_warp(view, warp_index() * grid_size() + block_index(),
                                 grid_size() * (block_size() / kWarp), is_crowded,
                                 words + warp_index() * kWordsOfPartition);
  pairs = detail::sum_of(this_block{}, *reinterpret_cast<match_sums*>(words), pairs);
  if (thread_index() == 0 && pairs > 0) fetch_add<device_scope>(&view.words->matches, pairs);
}

/// One phase by all threads of a grid; they are partitioned_workspace::kOfSplit. `words`: of the
/// block, in shared memory, kWordsOfPartition for each warp.
POLYPATH_DEVICE void run_split_phase(const split_view& view, unsigned phase, std::uint32_t* words) {
  const detail::whole_grid grid;
  if (phase == 0) return begin_split(view);
  if (phase == 1) return scatter_to_partitions<partitioned>(view);
  if (load(&view.words->bad) != kNothingBad) {
    if (phase == 4) detail::match_nothing(view.batch, grid.rank(), grid.size());
    return;
  }
  if (load(&view.words->is_long) != 0) return;
  const bool is_crowded = load(&view.words->is_crowded) != 0;
  if (phase == 2 && is_crowded) assign_partition_offsets(view, words);
  if (phase == 3 && is_crowded) gather_partitions(view);
  if (phase == 4) match_partitions(view, words);
}

}  // namespace polypath::device
