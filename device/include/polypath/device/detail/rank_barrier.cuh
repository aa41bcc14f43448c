// How the ranks of a communicator meet, from kernels: each raises a word on every other, after all
// that it has stored, and waits for its own. And which elements a rank combines for all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/group.cuh"
#include "polypath/device/tile.cuh"
#include "polypath/device/wait.cuh"

namespace polypath::device {

/// A group agrees, and meets: what is true for one of its threads is true for all.
POLYPATH_DEVICE bool any_of(const this_thread&, bool value) { return value; }
POLYPATH_DEVICE bool any_of(const this_warp& warp, bool value) {
  const bool any = warp_any(value);
  warp.sync();
  return any;
}
POLYPATH_DEVICE bool any_of(const this_block&, bool value) { return block_any(value); }
POLYPATH_DEVICE bool any_of(const warp_group& group, bool value) { return group.any(value); }

/// All blocks of a launch, which run at once (a cooperative launch), as one group. Threads make it
/// alike, for each kernel; `words` of collectives_view::grid.
class this_grid {
 public:
  POLYPATH_DEVICE this_grid(std::uint32_t* words, const wait_context& wait_ctx)
      : words_(words), wait_ctx_(wait_ctx) {
    // The block that waits for another rank says so before those that wait for it.
    if (wait_ctx_.time_limit_ns < ~std::uint64_t{0} / 2) wait_ctx_.time_limit_ns *= 2;
  }

  [[nodiscard]] POLYPATH_DEVICE unsigned rank() const {
    return block_index() * threads_of_block() + rank_in_block();
  }
  [[nodiscard]] POLYPATH_DEVICE unsigned size() const { return grid_size() * threads_of_block(); }
  [[nodiscard]] POLYPATH_DEVICE bool is_leader() const { return rank() == 0; }

  /// Threads of all blocks come to it. True for those of the last block: all that the grid stored
  /// is there. They end the meeting by let_go(), the others wait for that by `await()`.
  [[nodiscard]] POLYPATH_DEVICE bool is_last(std::uint32_t& turn) const {
    bool last = false;
    block_sync();
    if (rank_in_block() == 0) {
      turn = load_relaxed(words_ + kTurn);
      last = (arrive() + 1) % grid_size() == 0;
    }
    return block_any(last);
  }
  /// True if `has_arrived` is for all of the block; else the other blocks end by their time limit.
  [[nodiscard]] POLYPATH_DEVICE bool release(std::uint32_t turn, bool has_arrived) const {
    if (block_any(!has_arrived)) return false;
    if (rank_in_block() == 0) {
      POLYPATH_MUTANT_OMITS(collective_mutant::arrivals_not_reset)
      store_relaxed(words_, 0U);
      store_release(words_ + kTurn, turn + 1);
    }
    return true;
  }
  [[nodiscard]] POLYPATH_DEVICE bool await(std::uint32_t turn) const {
    bool has_arrived = true;
    POLYPATH_MUTANT(collective_mutant::group_ahead_of_its_barrier, return !block_any(false))
    if (rank_in_block() == 0) {
      std::uint32_t seen = 0;
      has_arrived = wait_until(
          wait_ctx_,
          [&] {
            seen = load_acquire(words_ + kTurn);
            return seen != turn;
          },
          [&] { return wait_target{wait_error::kNobody, turn + 1, seen}; });
    }
    return !block_any(!has_arrived);
  }
  /// All threads of the grid; orders memory between them. False: timed out or aborted (wait.cuh).
  [[nodiscard]] POLYPATH_DEVICE bool meet() const {
    std::uint32_t turn = 0;
    return is_last(turn) ? release(turn, true) : await(turn);
  }

 private:
  static constexpr unsigned kTurn = 32;
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t arrive() const {
    POLYPATH_MUTANT(collective_mutant::relaxed_arrival, return atomic_add_relaxed(words_, 1U))
    return atomic_add_acq_rel(words_, 1U);
  }
  std::uint32_t* words_;
  wait_context wait_ctx_;
};

/// One thread: until the word is at `value`, or past it. `wait_ctx()` and `awaited(seen)` are
/// called when it is not yet. False: timed out or aborted.
template <typename WaitContextOf, typename WhatFor>
POLYPATH_DEVICE bool await_value(const std::uint64_t* word, std::uint64_t value,
                                 const WaitContextOf& wait_ctx, const WhatFor& awaited) {
  std::uint64_t seen = 0;
  const auto ready = [&] {
    POLYPATH_MUTANT_ELSE(collective_mutant::word_loaded_plainly, seen = load(word))
    seen = load_acquire(word);
    POLYPATH_MUTANT(collective_mutant::exact_value, return seen == value)
    return has_come(seen, value);
  };
  if (ready()) return true;
  return wait_until(wait_ctx(), ready, [&] { return awaited(seen); });
}

namespace detail {

/// Raises this rank's word on all ranks, and waits for theirs: threads `rank`, `size` of a group.
template <typename Mine, typename Theirs, typename Await>
POLYPATH_DEVICE bool signal_and_wait_peers(unsigned rank, unsigned size, int own, int ranks,
                                           std::uint64_t number, const Mine& local_word,
                                           const Theirs& remote_word, const Await& await) {
  const int step = static_cast<int>(size);
  for (int r = static_cast<int>(rank); r < ranks; r += step) {
    auto* const word = remote_word(r);
    POLYPATH_MUTANT_ELSE(collective_mutant::barrier_without_release, store_relaxed(word, number))
    store_release(word, number);
  }
  bool all_arrived = true;
  for (int r = static_cast<int>(rank); r < ranks; r += step) {
    POLYPATH_MUTANT(collective_mutant::barrier_of_neighbours, if (r != (own + 1) % ranks) continue)
    if (r != own) all_arrived = await(local_word(r), number, r) && all_arrived;
  }
  return all_arrived;
}
template <typename Mine>
POLYPATH_DEVICE std::uint64_t number_of_meeting(int own, const Mine& local_word) {
  POLYPATH_MUTANT(collective_mutant::barrier_not_counted, return 1)
  return load_relaxed(local_word(own)) + 1;
}

}  // namespace detail

/// One group of each rank comes to it; then all that they stored before is there, for all of them.
/// `local_word(r)`: the word here that rank r raises; this rank's own counts the meetings.
/// `remote_word(r)`: the one that this rank raises on rank r. `await(word, number, r)`: until the
/// word is at the number, or false. False for all of the group: a wait of one thread timed out or
/// was aborted.
template <typename Group, typename Mine, typename Theirs, typename Await>
POLYPATH_DEVICE bool meet(const Group& group, int own, int ranks, const Mine& local_word,
                          const Theirs& remote_word, const Await& await) {
  const std::uint64_t number = detail::number_of_meeting(own, local_word);
  group.sync();  // all have the number; what all have stored goes with any release
  const bool arrived = detail::signal_and_wait_peers(group.rank(), group.size(), own, ranks, number,
                                                     local_word, remote_word, await);
  POLYPATH_MUTANT(collective_mutant::group_ahead_of_its_barrier, return arrived)
  return !any_of(group, !arrived);
}
/// By the block that comes last.
template <typename Mine, typename Theirs, typename Await>
POLYPATH_DEVICE bool meet(const this_grid& grid, int own, int ranks, const Mine& local_word,
                          const Theirs& remote_word, const Await& await) {
  const std::uint64_t number = detail::number_of_meeting(own, local_word);
  std::uint32_t turn = 0;
  if (!grid.is_last(turn)) return grid.await(turn);
  return grid.release(
      turn, detail::signal_and_wait_peers(rank_in_block(), threads_of_block(), own, ranks, number,
                                          local_word, remote_word, await));
}

/// The elements that a rank combines for all, of `count`.
struct element_slice {
  std::size_t begin;
  std::size_t length;  ///< may be 0
};
POLYPATH_DEVICE element_slice slice_of(int rank, int ranks, std::size_t count) {
  constexpr std::size_t kGranule = 64;  // elements: slices begin as the buffer does, modulo 16
  const std::size_t even =
      (count + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
  const std::size_t share = (even + kGranule - 1) / kGranule * kGranule;
  std::size_t begin = static_cast<std::size_t>(rank) * share;
  POLYPATH_MUTANT(collective_mutant::slices_overlap, if (rank > 0) begin -= 1)
  if (begin >= count) return {0, 0};
  return {begin, count - begin < share ? count - begin : share};
}

/// `length` elements of all ranks, in rank order, to every place of `to`. In place, too: no other
/// group reads what one group combines.
template <typename Group, typename Operation, typename Stored, int kMaxPointers>
POLYPATH_DEVICE void combine_all(const Group& group, const Operation& operation,
                                 const pointer_list<Stored, kMaxPointers>& to,
                                 pointer_list<const Stored, kMaxPointers> from,
                                 [[maybe_unused]] int own, std::size_t length) {
  POLYPATH_MUTANT(collective_mutant::own_part_first, std::swap(from.at[0], from.at[own]))
  reduce_tile(group, operation, to, from, length);
}

}  // namespace polypath::device
