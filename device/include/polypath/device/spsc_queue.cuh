// A bounded queue from one group of threads to one other: no counter is shared. Each side knows its
// own turn, and keeps it in memory between its kernels. Cells are those of queues; credit is one
// word, the turns that have been read, given back a segment at a time.
#pragma once

#include <cstdint>

#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/ring_buffer.cuh"
#include "polypath/device/spsc_view.hpp"
#include "polypath/device/status.hpp"
#include "polypath/device/wait.cuh"

namespace polypath::device {

namespace detail {

/// The place of the calling thread's team among the threads of its group.
template <typename Group>
POLYPATH_DEVICE unsigned team_begin(const Group& group) {
  return group.rank() - team_of(group).rank();
}

}  // namespace detail

/// The side that pushes: one group at a time, whose threads all make one of these, call it alike,
/// and leave(). All threads of the group get the same answer. After `aborted` the pair is of no use
/// any more, and every call answers so.
template <typename T, typename Scope = device_scope, typename Layout = ll>
class spsc_producer {
  using Cells = ring_buffer<T, Scope, Layout>;

 public:
  POLYPATH_DEVICE explicit spsc_producer(const spsc_view& view)
      : cells_(view.cells, view.capacity_log2),
        view_(view),
        turn_(load_relaxed<Scope>(view.sent)),
        room_until_(turn_) {}

  /// One item of each thread. Waits while there is no room.
  template <typename Group>
  POLYPATH_DEVICE status push(const Group& group, const T& item) {
    return push<1>(group, *reinterpret_cast<const T(*)[1]>(&item));
  }
  /// `kItems` of each thread: items[0] of all threads, then items[1], ...
  template <unsigned kItems, typename Group>
  POLYPATH_DEVICE status push(const Group& group, const T (&items)[kItems]) {
    if (aborted_) return status::aborted;  // also where there would be room for less
    const unsigned turns = group.size() * kItems;
    if (turns > std::uint64_t{1} << view_.segment_log2) return status::too_many_items;
    if (!has_come(room_until_, turn_ + turns) && !await_room(group, turn_ + turns))
      return status::aborted;
    const auto team = detail::team_of(group);
    const std::uint64_t first = turn_ + detail::team_begin(group);
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i) cells_.put_each(team, first + i * group.size(), items[i]);
    turn_ += turns;
    return status::done;
  }

  /// Keeps the turn for the next kernel.
  template <typename Group>
  POLYPATH_DEVICE void leave(const Group& group) {
    POLYPATH_MUTANT_OMITS(spsc_mutant::turn_forgotten)
    if (group.is_leader() && !aborted_) store_relaxed<Scope>(view_.sent, turn_);
  }

 private:
  /// Waits until there is room for the turns before `end`. `room_until_` becomes what all threads
  /// have seen: half a ring more where they have, so that they do not look again for each push.
  template <typename Group>
  POLYPATH_DEVICE_NOINLINE bool await_room(const Group& group, std::uint64_t end) {
    const std::uint64_t capacity = std::uint64_t{1} << view_.capacity_log2;
    std::uint64_t room_until = 0;
    const bool arrived = wait_until(
        detail::team_of(group), view_.wait_ctx,
        [&] {
          room_until = load_relaxed<Scope>(view_.credit) + capacity;
          POLYPATH_MUTANT(spsc_mutant::no_credit, return true)
          return has_come(room_until, end);
        },
        [&] {
          return wait_target{wait_error::kNobody, end - capacity, room_until - capacity,
                             view_.number, 0};
        });
    aborted_ = group.any(!arrived);
    POLYPATH_MUTANT(spsc_mutant::answers_by_warp, aborted_ = false)
    if (aborted_ || !arrived) return false;
    const std::uint64_t more = end + capacity / 2;
    room_until_ = group.all(has_come(room_until, more)) ? more : end;
    return true;
  }

  Cells cells_;
  spsc_view view_;
  std::uint64_t turn_;
  std::uint64_t room_until_;  ///< known by all threads alike
  bool aborted_ = false;
};

/// The side that pops; its group calls it as a producer's does.
template <typename T, typename Scope = device_scope, typename Layout = ll>
class spsc_consumer {
  using Cells = ring_buffer<T, Scope, Layout>;

 public:
  POLYPATH_DEVICE explicit spsc_consumer(const spsc_view& view)
      : cells_(view.cells, view.capacity_log2),
        view_(view),
        turn_(load_relaxed<Scope>(view.received)),
        given_(turn_) {}

  /// One item for each thread. Waits until it is there.
  template <typename Group>
  POLYPATH_DEVICE status pop(const Group& group, T& item) {
    return pop<1>(group, *reinterpret_cast<T(*)[1]>(&item));
  }
  /// `kItems` for each thread, in the order of push().
  template <unsigned kItems, typename Group>
  POLYPATH_DEVICE status pop(const Group& group, T (&items)[kItems]) {
    const unsigned turns = group.size() * kItems;
    if (turns > std::uint64_t{1} << view_.segment_log2) return status::too_many_items;
    if (aborted_) return status::aborted;
    const auto team = detail::team_of(group);
    const std::uint64_t first = turn_ + detail::team_begin(group);
    turn_ += turns;
    POLYPATH_MUTANT(spsc_mutant::credit_before_reading, return_credit(group))
    bool is_there[kItems];
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i)
      is_there[i] = cells_.load_items(team, first + i * group.size(), items[i]);
    bool arrived = true;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i) {
      if (team.all(is_there[i])) continue;
      const status answer = cells_.wait_items(
          team, view_.wait_ctx, first + i * group.size(), items[i], is_there[i],
          [](std::uint64_t) { return false; },
          [&](std::uint64_t turn) {
            return wait_target{wait_error::kNobody, turn, turn_ - turns, view_.number, 0};
          });
      arrived = arrived && answer == status::done;
    }
    // All have read, or all return: no thread waits for one that has left.
    POLYPATH_MUTANT_ELSE(spsc_mutant::answers_by_warp, aborted_ = !arrived)
    aborted_ = group.any(!arrived);
    if (aborted_) return status::aborted;
    if ((turn_ - given_) >> view_.segment_log2 != 0) return_credit(group);
    return status::done;
  }

  /// Keeps the turn for the next kernel, and gives back what has been read.
  template <typename Group>
  POLYPATH_DEVICE void leave(const Group& group) {
    if (aborted_) return;
    return_credit(group);
    POLYPATH_MUTANT_OMITS(spsc_mutant::turn_forgotten)
    if (group.is_leader()) store_relaxed<Scope>(view_.received, turn_);
  }

 private:
  /// After a pop: its end is where all have read.
  template <typename Group>
  POLYPATH_DEVICE void return_credit(const Group& group) {
    if (group.is_leader()) store_relaxed<Scope>(view_.credit, turn_);
    given_ = turn_;
  }

  Cells cells_;
  spsc_view view_;
  std::uint64_t turn_;
  std::uint64_t given_;
  bool aborted_ = false;
};

}  // namespace polypath::device
