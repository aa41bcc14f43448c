// A bounded queue from one group of threads to one other: no counter is shared. Each side knows its
// own turn, and keeps it in memory between its kernels. Cells are those of queues; credit is one
// word, the turns that have been read, given back a segment at a time.
#pragma once

#include <cstdint>

#include "polypath/device/cells.cuh"
#include "polypath/device/pair_view.hpp"
#include "polypath/device/status.hpp"
#include "polypath/device/wait.cuh"

namespace polypath::device {

/// Defects of pairs (planted.hpp).
enum class PairFault {
  none,
  no_credit,
  credit_before_reading,  ///< of the leader alone: others still read
  turn_forgotten          ///< the next kernel begins again
};

/// The side that pushes: one group at a time, whose threads all make one of these, call it alike,
/// and leave().
template <typename T, typename Scope = device_scope, typename Layout = packets>
class pair_producer {
  using Cells = cells<T, Scope, Layout>;

 public:
  POLYPATH_DEVICE explicit pair_producer(const pair_view& view)
      : cells_(view.cells, view.capacity_log2),
        view_(view),
        turn_(load_relaxed<Scope>(view.sent)),
        read_(load_relaxed<Scope>(view.credit)) {}

  /// One item of each thread. Waits while there is no room.
  template <typename Members>
  POLYPATH_DEVICE status push(const Members& group, const T& item) {
    return push<1>(group, *reinterpret_cast<const T(*)[1]>(&item));
  }
  /// `kItems` of each thread: items[0] of all threads, then items[1], ...
  template <unsigned kItems, typename Members>
  POLYPATH_DEVICE status push(const Members& group, const T (&items)[kItems]) {
    const unsigned turns = group.size() * kItems;
    if (turns > std::uint64_t{1} << view_.segment_log2) return status::too_many;
    if (!has_room(turns) && !await_room(turns)) return status::gave_up;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i) put_all(group, turn_ + i * group.size(), items[i]);
    turn_ += turns;
    return status::done;
  }

  /// Keeps the turn for the next kernel.
  template <typename Members>
  POLYPATH_DEVICE void leave(const Members& group) {
    if (group.is_leader() && !planted(PairFault::turn_forgotten))
      store_relaxed<Scope>(view_.sent, turn_);
  }

 private:
  POLYPATH_DEVICE void put_all(const Thread& thread, std::uint64_t first, const T& item) {
    cells_.put_each(thread, first, item);
  }
  template <typename Members>
  POLYPATH_DEVICE void put_all(const Members& group, std::uint64_t first, const T& item) {
    cells_.put_each(Warp{}, first + group.rank() / kWarp * kWarp, item);
  }
  [[nodiscard]] POLYPATH_DEVICE bool has_room(unsigned turns) const {
    if (planted(PairFault::no_credit)) return true;
    return turn_ + turns - read_ <= std::uint64_t{1} << view_.capacity_log2;
  }
  POLYPATH_DEVICE bool await_room(unsigned turns) {
    for (unsigned i = 1; i < detail::kTurnsPerLook; ++i) {
      read_ = load_relaxed<Scope>(view_.credit);
      if (has_room(turns)) return true;
    }
    read_ = await_long(turns);
    return has_room(turns);
  }
  POLYPATH_DEVICE_CALLED std::uint64_t await_long(unsigned turns) const {
    const std::uint64_t enough = turn_ + turns - (std::uint64_t{1} << view_.capacity_log2);
    std::uint64_t read = 0;
    wait_with(
        view_.patience,
        [&] {
          read = load_relaxed<Scope>(view_.credit);
          return has_come(read, enough);
        },
        [&] { return Awaited{StatusRecord::kNobody, enough, read, view_.number, 0}; });
    return read;
  }

  Cells cells_;
  pair_view view_;
  std::uint64_t turn_;
  std::uint64_t read_;
};

/// The side that pops, likewise.
template <typename T, typename Scope = device_scope, typename Layout = packets>
class pair_consumer {
  using Cells = cells<T, Scope, Layout>;

 public:
  POLYPATH_DEVICE explicit pair_consumer(const pair_view& view)
      : cells_(view.cells, view.capacity_log2),
        view_(view),
        turn_(load_relaxed<Scope>(view.received)),
        given_(turn_) {}

  /// One item for each thread. Waits until it is there.
  template <typename Members>
  POLYPATH_DEVICE status pop(const Members& group, T& item) {
    return pop<1>(group, *reinterpret_cast<T(*)[1]>(&item));
  }
  template <unsigned kItems, typename Members>
  POLYPATH_DEVICE status pop(const Members& group, T (&items)[kItems]) {
    const unsigned turns = group.size() * kItems;
    if (turns > std::uint64_t{1} << view_.segment_log2) return status::too_many;
    status result = status::done;
    bool is_there[kItems];
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i)
      is_there[i] = get_all(group, turn_ + i * group.size(), items[i]);
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i) {
      for (unsigned look = 1; Cells::kTogether > 1 && look < detail::kTurnsPerLook; ++look) {
        if (all_of(group, is_there[i])) break;
        is_there[i] = get_all(group, turn_ + i * group.size(), items[i]);
      }
      if (!is_there[i] && result == status::done)
        result = await_item(turn_ + i * group.size() + group.rank(), items[i]);
    }
    turn_ += turns;
    if (result != status::done) return result;
    if ((turn_ - given_) >> view_.segment_log2 != 0) give_back(group);
    return status::done;
  }

  /// Keeps the turn for the next kernel, and gives back what has been read.
  template <typename Members>
  POLYPATH_DEVICE void leave(const Members& group) {
    give_back(group);
    if (group.is_leader() && !planted(PairFault::turn_forgotten))
      store_relaxed<Scope>(view_.received, turn_);
  }

 private:
  POLYPATH_DEVICE static bool all_of(const Thread&, bool value) { return value; }
  template <typename Members>
  POLYPATH_DEVICE static bool all_of(const Members&, bool value) {
    return warp_all(value);
  }
  POLYPATH_DEVICE bool get_all(const Thread& thread, std::uint64_t first, T& item) {
    return cells_.get_each(thread, first, item);
  }
  template <typename Members>
  POLYPATH_DEVICE bool get_all(const Members& group, std::uint64_t first, T& item) {
    return cells_.get_each(Warp{}, first + group.rank() / kWarp * kWarp, item);
  }
  template <typename Members>
  POLYPATH_DEVICE void give_back(const Members& group) {
    if (!planted(PairFault::credit_before_reading)) group.sync();  // all have read
    if (group.is_leader()) store_relaxed<Scope>(view_.credit, turn_);
    given_ = turn_;
  }

  POLYPATH_DEVICE status await_item(std::uint64_t turn, T& item) const {
    for (unsigned i = 1; i < detail::kTurnsPerLook; ++i)
      if (cells_.get(turn, item)) return status::done;
    T found;
    if (!await_long(turn, found)) return status::gave_up;
    item = found;
    return status::done;
  }
  POLYPATH_DEVICE_CALLED bool await_long(std::uint64_t turn, T& item) const {
    return wait_with(
        view_.patience, [&] { return cells_.get(turn, item); },
        [&] { return Awaited{StatusRecord::kNobody, turn, turn_, view_.number, 0}; });
  }

  Cells cells_;
  pair_view view_;
  std::uint64_t turn_;
  std::uint64_t given_;
};

}  // namespace polypath::device
