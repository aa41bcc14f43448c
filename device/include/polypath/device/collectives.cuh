// Collectives that kernels make over symmetric memory: barrier, broadcast, all-gather, allreduce.
// By one group of each rank, a thread, a warp or a block; or by the whole grid of each, all blocks
// of a cooperative launch. All ranks make the same calls in the same order, all threads of a group
// with the same arguments.
//
// Each begins with a barrier: memory of all is free; what a rank gets is there when its call
// returns, and what it gave may be overwritten. Sums are taken in rank order, half types in float32
// with one rounding: the same bits on all ranks, in all runs, by any group.
//
// Memory model: what a thread of any rank's group stored before a barrier happens before what any
// thread of all groups does after it.
//
// Every call ends, within the time limit or with an abort: `aborted`, for all of the group alike.
// What comes after it may not tell others what never happened: a kernel that finds it ends.
#pragma once

#include <cstddef>
#include <type_traits>

#include "polypath/device/collectives_view.hpp"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/operations.hpp"
#include "polypath/device/detail/rank_barrier.cuh"
#include "polypath/device/status.hpp"

namespace polypath::device {

class collectives {
 public:
  static constexpr int kMaxRanks = collectives_view::kMaxRanks;

  POLYPATH_DEVICE explicit collectives(const collectives_view& view) : view_(view) {}

  [[nodiscard]] POLYPATH_DEVICE int rank() const { return view_.rank; }
  [[nodiscard]] POLYPATH_DEVICE int ranks() const { return view_.ranks; }
  /// The group of all blocks.
  [[nodiscard]] POLYPATH_DEVICE this_grid grid() const {
    return this_grid(view_.grid, view_.wait_ctx);
  }

  template <typename Group>
  POLYPATH_DEVICE status barrier(const Group& group) const {
    const auto local_word = [&](int r) { return of_rank(view_.meeting, view_.rank) + r; };
    const auto remote_word = [&](int r) { return of_rank(view_.meeting, r) + view_.rank; };
    const auto await = [&](const std::uint64_t* word, std::uint64_t number, int r) {
      return await_value(
          word, number, [&] { return view_.wait_ctx; },
          [&](std::uint64_t seen) {
            return wait_target{static_cast<std::uint32_t>(r), number, seen};
          });
    };
    return meet(group, view_.rank, view_.ranks, local_word, remote_word, await) ? status::done
                                                                                : status::aborted;
  }

  /// `count` elements of rank `root` to the same place on all ranks.
  template <typename Group, typename T>
  POLYPATH_DEVICE status broadcast(const Group& group, const symmetric<T>& data, std::size_t count,
                                   int root) const {
    return between_barriers(group, [&] {
      if (view_.rank == root) put_to_all(group, of_rank(data.at, root), data, 0, count);
    });
  }

  /// `count` elements of each rank, in rank order, to all. `local` is any memory of this GPU, or
  /// this rank's part of `all`.
  template <typename Group, typename T>
  POLYPATH_DEVICE status all_gather(const Group& group, const T* local, const symmetric<T>& all,
                                    std::size_t count) const {
    int slot = view_.rank;
    POLYPATH_MUTANT(collective_mutant::wrong_slot, slot = (view_.rank + 1) % view_.ranks)
    return between_barriers(group, [&] {
      put_to_all(group, local, all, static_cast<std::size_t>(slot) * count, count);
    });
  }

  /// `count` elements of all ranks, combined by Operation (operations.hpp), to all. In place where
  /// `send` and `recv` are the same; else they do not overlap.
  template <typename Operation, typename Group, typename T>
  POLYPATH_DEVICE status all_reduce(const Group& group, const symmetric<T>& send,
                                    const symmetric<T>& recv, std::size_t count) const {
    const element_slice slice = slice_of(view_.rank, view_.ranks, count);
    return between_barriers(group, [&] {
      if (slice.length == 0) return;
      pointer_list<T, kMaxRanks> to{};
      pointer_list<const T, kMaxRanks> from{};
      to.count = from.count = view_.ranks;
      POLYPATH_UNROLL
      for (int r = 0; r < kMaxRanks; ++r) {
        to.at[r] = recv.at[r] + slice.begin;
        from.at[r] = send.at[r] + slice.begin;
      }
      combine_all(group, in_rank_order<Operation, T>(view_.ranks), to, from, view_.rank,
                  slice.length);
    });
  }

 private:
  /// The entry of `rank`. The array must stay in registers.
  template <typename T>
  POLYPATH_DEVICE static T* of_rank(T* const (&all)[kMaxRanks], int rank) {
    T* selected = all[0];
    POLYPATH_UNROLL
    for (int r = 1; r < kMaxRanks; ++r)
      if (r == rank) selected = all[r];
    return selected;
  }

  /// The first: memory of all is free; the last: all is there.
  template <typename Group, typename Work>
  POLYPATH_DEVICE status between_barriers(const Group& group, const Work& work) const {
    POLYPATH_MUTANT_OMITS(collective_mutant::no_first_barrier)
    if (barrier(group) != status::done) return status::aborted;
    work();
    POLYPATH_MUTANT(collective_mutant::no_last_barrier, return status::done)
    return barrier(group);
  }

  template <typename Group, typename T>
  POLYPATH_DEVICE void put_to_all(const Group& group, const T* from, const symmetric<T>& to,
                                  std::size_t first, std::size_t count) const {
    static_assert(std::is_trivially_copyable<T>::value, "elements are copied as bytes");
    constexpr int kInFlight = 2;
    pointer_list<unsigned char, kMaxRanks> places{};
    places.count = view_.ranks;
    POLYPATH_UNROLL
    for (int r = 0; r < kMaxRanks; ++r)
      places.at[r] = reinterpret_cast<unsigned char*>(to.at[r] + first);
    copy_tile<tile_access::streaming, tile_access::streaming, kInFlight>(
        group, places, reinterpret_cast<const unsigned char*>(from), count * sizeof(T));
  }

  collectives_view view_;
};

}  // namespace polypath::device
