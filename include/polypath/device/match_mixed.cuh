// Matching without a source wildcard by the whole GPU: one batch of many sources, split into
// partitions (split.cuh), each of which a warp puts in order and matches; blocks take long ones.
#pragma once

#include <cstdint>

#include "polypath/device/match_partitioned.cuh"
#include "polypath/device/sort.cuh"
#include "polypath/device/split.cuh"

namespace polypath::device {

/// In shared memory, for each warp of a block.
inline constexpr unsigned kWordsOfPartition = 2 * split_view::kMostOfWarp;

namespace detail {

/// A partition, as MessageWindow sees it.
class NumberedBatch {
 public:
  /// `words`: of the group that takes it, in shared memory, `room` for each side.
  POLYPATH_DEVICE NumberedBatch(const split_view& view, std::uint32_t partition,
                                std::uint32_t* words, std::uint32_t room)
      : view_(view),
        words_{words, words + room},
        messages_(view.split[0] + load(view.begins[0] + partition)),
        receives_(view.split[1] + load(view.begins[1] + partition)),
        message_count_(load(view.counts[0] + partition)),
        receive_count_(load(view.counts[1] + partition)) {}

  [[nodiscard]] POLYPATH_DEVICE std::uint32_t message_count() const { return message_count_; }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t receive_count() const { return receive_count_; }
  /// Of the side that has more, or 0: one has nothing.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t most() const {
    if (message_count_ == 0 || receive_count_ == 0) return 0;
    return message_count_ < receive_count_ ? receive_count_ : message_count_;
  }

  /// First of all, where there are both.
  template <typename Members>
  POLYPATH_DEVICE void put_in_order(const Members& group) const {
    sort(group);
    group.sync();
    if (view_.batch.receive_of_message == nullptr) return;
    for (std::uint32_t i = group.rank(); i < message_count_; i += group.size())
      store(view_.batch.receive_of_message + number(0, i), kNone);
    group.sync();
  }
  /// By a warp, in the place of all else where there are not.
  POLYPATH_DEVICE void match_nothing() const {
    for (std::uint32_t i = rank_in_warp(); i < receive_count_; i += kWarp)
      store(view_.batch.message_of_receive + load(&receives_[i].number), kNone);
    if (view_.batch.receive_of_message != nullptr)
      for (std::uint32_t i = rank_in_warp(); i < message_count_; i += kWarp)
        store(view_.batch.receive_of_message + load(&messages_[i].number), kNone);
  }

  [[nodiscard]] POLYPATH_DEVICE envelope message(std::uint32_t i) const {
    return load(&messages_[place(0, i)].what);
  }
  [[nodiscard]] POLYPATH_DEVICE envelope receive(std::uint32_t i) const {
    return load(&receives_[place(1, i)].what);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t match(std::uint32_t receive) const {
    return load(view_.batch.message_of_receive + number(1, receive));
  }
  POLYPATH_DEVICE void set_none(std::uint32_t receive) const {
    store(view_.batch.message_of_receive + number(1, receive), kNone);
  }
  POLYPATH_DEVICE void set_match(std::uint32_t receive, std::uint32_t message) const {
    store(view_.batch.message_of_receive + number(1, receive), number(0, message));
    if (view_.batch.receive_of_message != nullptr)
      store(view_.batch.receive_of_message + number(0, message), number(1, receive));
  }

 private:
  // The words: in order, number times kPlaces, and the place in the partition.
  static constexpr std::uint32_t kPlaces = split_view::kMostOfBlock;
  static_assert(std::uint64_t{partitioned_workspace::kMostCapacity} * kPlaces < kNone,
                "a word has room for both");
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t place(unsigned side, std::uint32_t i) const {
    return words_[side][i] % kPlaces;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t number(unsigned side, std::uint32_t i) const {
    return words_[side][i] / kPlaces;
  }
  /// Of one that has no order yet; kNone where there is none.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t word_at(unsigned side, std::uint32_t place) const {
    const numbered* const from = side == 0 ? messages_ : receives_;
    const std::uint32_t count = side == 0 ? message_count_ : receive_count_;
    return place < count ? load(&from[place].number) * kPlaces + place : kNone;
  }
  POLYPATH_DEVICE void sort(const Warp&) const {
    constexpr unsigned kUsual = 2;  // of each lane
    if (most() <= kUsual * kWarp)
      sort_in_registers<kUsual>();
    else
      sort_in_registers<split_view::kMostOfWarp / kWarp>();
  }
  template <unsigned kEach>
  POLYPATH_DEVICE void sort_in_registers() const {
    std::uint32_t both[2][kEach];
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kEach; ++i) {
      both[0][i] = word_at(0, i * kWarp + rank_in_warp());
      both[1][i] = word_at(1, i * kWarp + rank_in_warp());
    }
    const bool in_no_order = planted(SplitFault::in_no_order);
    if (!in_no_order) sort_in_warp(both);
    warp_sync();  // others may still read the words of the one before
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kEach; ++i) {
      const unsigned at = in_no_order ? i * kWarp + rank_in_warp() : rank_in_warp() * kEach + i;
      words_[0][at] = both[0][i];
      words_[1][at] = both[1][i];
    }
  }
  POLYPATH_DEVICE void sort(const Block& block) const {
    const std::uint32_t all = 1U << log2_above(most());
    POLYPATH_NO_UNROLL
    for (unsigned side = 0; side < 2; ++side) {
      for (std::uint32_t i = block.rank(); i < all; i += block.size())
        words_[side][i] = word_at(side, i);
      block.sync();
      if (!planted(SplitFault::long_in_no_order)) sort_in_block(block, words_[side], all);
    }
  }

  const split_view& view_;
  std::uint32_t* words_[2];
  const numbered* messages_;
  const numbered* receives_;
  std::uint32_t message_count_;
  std::uint32_t receive_count_;
};

/// Blocks take the partitions that are too long for a warp. Returns how many pairs this thread has
/// made. By a call, so that warps have the registers for themselves.
POLYPATH_DEVICE_CALLED std::uint32_t match_noted(const split_view& view, std::uint32_t* words) {
  const Block block;
  std::uint32_t pairs = 0;
  const std::uint32_t noted = load(&view.words->noted);
  for (std::uint32_t at = block_index(); at < noted; at += grid_size()) {
    const NumberedBatch batch(view, load(view.noted + at), words,
                              split_view::most_of_block(block_size() / kWarp));
    batch.put_in_order(block);
    pairs += match_windows(block, batch);
    block.sync();  // the words may be used anew
  }
  return pairs;
}

}  // namespace detail

/// By blocks of the size that give_out_places() had. `words`: of the block, kWordsOfPartition for
/// each warp.
POLYPATH_DEVICE void match_partitions(const split_view& view, std::uint32_t* words) {
  constexpr std::uint32_t kMost = split_view::kMostOfWarp;
  static_assert(sizeof(match_sums) <= kWordsOfPartition * sizeof(std::uint32_t), "");
  const unsigned warps = grid_size() * (block_size() / kWarp);
  std::uint32_t pairs = load(&view.words->noted) != 0 ? detail::match_noted(view, words) : 0;
  for (std::uint32_t partition = warp_index() * grid_size() + block_index();
       partition < view.partitions(); partition += warps) {
    const detail::NumberedBatch batch(view, partition, words + warp_index() * kWordsOfPartition,
                                      kMost);
    const std::uint32_t most = batch.most();
    if (most == 0) {
      batch.match_nothing();
    } else if (most <= kMost) {
      batch.put_in_order(Warp{});
      pairs += detail::match_windows(Warp{}, batch);
    }
  }
  pairs = detail::sum_of(Block{}, *reinterpret_cast<match_sums*>(words), pairs);
  if (thread_index() == 0 && pairs > 0) fetch_add<device_scope>(&view.words->matches, pairs);
}

/// One phase by all threads of a grid; they are partitioned_workspace::kOfSplit. `words`: of the
/// block, in shared memory, kWordsOfPartition for each warp.
POLYPATH_DEVICE void run_split_phase(const split_view& view, unsigned phase, std::uint32_t* words) {
  const detail::WholeGrid grid;
  if (phase == 0) return begin_split(view);
  if (phase == 1) return rank_elements<partitioned>(view);
  if (phase == 2) return give_out_places(view, words);
  if (load(&view.words->bad) != kNothingBad) {
    if (phase == 4) detail::match_nothing(view.batch, grid.rank(), grid.size());
    return;
  }
  if (load(&view.words->is_long) != 0) return;
  if (phase == 3) move_elements(view);
  if (phase == 4) match_partitions(view, words);
}

}  // namespace polypath::device
