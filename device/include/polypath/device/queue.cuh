// A bounded queue in memory that several groups of threads share: any number of them push, any
// number pop, each item is popped once. Of one GPU (device_scope), or of several (system_scope).
//
// A ring of cells. A push takes a turn, one for all items of a group, by one addition to `tail`; a
// pop takes one by an addition to `head`. Turn t is cell t % capacity, lap
// t / capacity. A cell says itself which lap it holds, in each 16 bytes that are stored at once, so
// no flag and no fence is after the data. What keeps a producer from overwriting a cell that has
// not been read is credit: consumers count what they have read in each segment of the ring, and
// give back a whole segment by one word.
//
// Items come in the order of their turns; items of one push have turns in a row, thread by thread.
#pragma once

#include <cstdint>
#include <type_traits>

#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/ring_buffer.cuh"
#include "polypath/device/queue_view.hpp"
#include "polypath/device/scope.cuh"
#include "polypath/device/status.hpp"
#include "polypath/device/wait.cuh"

namespace polypath::device {

template <typename T, typename Scope = device_scope, typename Layout = ll>
class queue {
  using Cells = ring_buffer<T, Scope, Layout>;

 public:
  static constexpr unsigned kCellBytes = Cells::kBytes;

  POLYPATH_DEVICE explicit queue(const queue_view& view)
      : cells_(view.cells, view.capacity_log2), view_(view) {}

  /// One item of each thread of the group, which all call it. Waits while the queue is full.
  template <typename Group>
  POLYPATH_DEVICE status push(const Group& group, const T& item) const {
    return push<1>(group, *reinterpret_cast<const T(*)[1]>(&item));
  }
  /// `kItems` of each thread, in one turn: items[0] of all threads, then items[1], ...
  template <unsigned kItems, typename Group>
  POLYPATH_DEVICE status push(const Group& group, const T (&items)[kItems]) const {
    const auto team = detail::team_of(group);
    const unsigned turns = team.size() * kItems;
    if (turns > segment_cells()) return status::too_many_items;
    const std::uint64_t first = take(team, view_.tail, turns);
    return fill<kItems>(team, first, items);
  }

  /// One item for each thread of the group, which all call it. Waits while the queue is empty and
  /// open.
  template <typename Group>
  POLYPATH_DEVICE status pop(const Group& group, T& item) const {
    return pop<1>(group, *reinterpret_cast<T(*)[1]>(&item));
  }
  /// `kItems` for each thread, in the order of push(). Not `done`: `items` beyond `*got` are as
  /// they were.
  template <unsigned kItems, typename Group>
  POLYPATH_DEVICE status pop(const Group& group, T (&items)[kItems],
                             unsigned* got = nullptr) const {
    const auto team = detail::team_of(group);
    const unsigned turns = team.size() * kItems;
    if (got != nullptr) *got = 0;
    if (turns > segment_cells()) return status::too_many_items;
    const std::uint64_t first = take(team, view_.head, turns);
    POLYPATH_MUTANT(queue_mutant::credit_before_reading, return_credit(team, first, turns))
    bool is_there[kItems];
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i)
      is_there[i] = cells_.load_items(team, first + i * team.size(), items[i]);
    status result = status::done;
    unsigned count = 0;
    unsigned looks = 0;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i) {
      status answer = status::done;
      if (!team.all(is_there[i]))
        answer = cells_.wait_items(
            team, view_.wait_ctx, first + i * team.size(), items[i], is_there[i],
            [this, &looks](std::uint64_t turn) {
              return ++looks % kLooksPerClosed == 0 && load_relaxed<Scope>(view_.closed) <= turn;
            },
            [this](std::uint64_t turn) { return awaited(turn); });
      if (result == status::done) result = answer;
      if (result == status::done) ++count;
    }
    if (got != nullptr) *got = count;
    POLYPATH_MUTANT_OMITS(queue_mutant::credit_before_reading)
    return_credit(team, first, item_count(team, first, turns, result));
    return result;
  }

  /// push() with release semantics. Pairs with pop_acquire().
  template <unsigned kItems, typename Group>
  POLYPATH_DEVICE status push_release(const Group& group, const T (&items)[kItems]) const {
    detail::team_of(group).sync();  // neighbours may store this thread's item
    POLYPATH_MUTANT_OMITS(queue_mutant::no_release)
    fence<Scope>();
    return push(group, items);
  }
  template <unsigned kItems, typename Group>
  POLYPATH_DEVICE status pop_acquire(const Group& group, T (&items)[kItems],
                                     unsigned* got = nullptr) const {
    const status result = pop(group, items, got);
    POLYPATH_MUTANT_OMITS(queue_mutant::no_acquire)
    fence<Scope>();
    detail::team_of(group).sync();  // neighbours may have read it
    return result;
  }
  template <typename Group>
  POLYPATH_DEVICE status push_release(const Group& group, const T& item) const {
    return push_release<1>(group, *reinterpret_cast<const T(*)[1]>(&item));
  }
  template <typename Group>
  POLYPATH_DEVICE status pop_acquire(const Group& group, T& item) const {
    return pop_acquire<1>(group, *reinterpret_cast<T(*)[1]>(&item));
  }

  /// As push(), but never waits: `full`, and nothing was pushed, when there is no room for all.
  template <typename Group>
  POLYPATH_DEVICE status try_push(const Group& group, const T& item) const {
    const auto team = detail::team_of(group);
    const unsigned turns = team.size();
    if (turns > segment_cells()) return status::too_many_items;
    std::uint64_t first = kNoTicket;
    if (team.is_leader()) {
      for (std::uint64_t seen = load_relaxed<Scope>(view_.tail);;) {
        look_at_source(seen);
        look_at_source(seen + turns - 1);
        if (!has_credit(seen) || !has_credit(seen + turns - 1)) break;
        const std::uint64_t current = compare_exchange<Scope>(view_.tail, seen, seen + turns);
        if (current == seen) {
          first = seen;
          break;
        }
        seen = current;
      }
    }
    first = from_leader(team, first);
    if (first == kNoTicket) return status::full;
    cells_.put_each(team, first, item);
    return status::done;
  }

  /// As pop(), but never waits: `empty` for the threads for which nothing was there. Those of lower
  /// rank come first.
  template <typename Group>
  POLYPATH_DEVICE status try_pop(const Group& group, T& item) const {
    const auto team = detail::team_of(group);
    for (;;) {
      std::uint64_t first = team.is_leader() ? load_relaxed<Scope>(view_.head) : 0;
      first = from_leader(team, first);
      // The contents of the cells are valid if the head has not moved since: no cell is returned
      // before.
      T value;
      const bool is_there = cells_.get(first + team.rank(), value);
      const unsigned count = count_of_leading(team, is_there);
      if (count == 0) {
        const std::uint64_t end = team.is_leader() ? load_relaxed<Scope>(view_.closed) : 0;
        return from_leader(team, end) <= first ? status::closed : status::empty;
      }
      std::uint64_t taken = first;
      POLYPATH_MUTANT_ELSE(queue_mutant::two_looks_at_the_head, take(team, view_.head, count))
      if (team.is_leader()) taken = compare_exchange<Scope>(view_.head, first, first + count);
      if (from_leader(team, taken) != first) continue;
      if (team.rank() < count) item = value;
      return_credit(team, first, count);
      return team.rank() < count ? status::done : status::empty;
    }
  }

  /// Whether the communicator was aborted, or a wait of this rank timed out. try_push() and
  /// try_pop() do not check. Loops that poll with them must, by all threads of a group (a block:
  /// each of its warps for itself). True: the queue is unusable from now on.
  template <typename Group>
  [[nodiscard]] POLYPATH_DEVICE bool is_aborted(const Group& group) const {
    return device::is_aborted(detail::team_of(group), view_.wait_ctx, view_.number);
  }

  /// No push comes any more: pops that have nothing left end with `closed`. Called by one thread,
  /// once, when all pushes have returned, or been ordered before it.
  POLYPATH_DEVICE void close() const {
    store_relaxed<Scope>(view_.closed, load_relaxed<Scope>(view_.tail));
  }

 private:
  static constexpr std::uint64_t kNoTicket = ~std::uint64_t{0};
  // All that wait load the same word to see whether the queue is closed: not at each look. On the
  // host a wait sleeps until something changes that its last look loaded.
#if defined(__CUDACC__)
  static constexpr unsigned kLooksPerClosed = 8;
#else
  static constexpr unsigned kLooksPerClosed = 1;
#endif

  POLYPATH_DEVICE static std::uint64_t from_leader(const this_thread&, std::uint64_t value) {
    return value;
  }
  POLYPATH_DEVICE static std::uint64_t from_leader(const this_warp&, std::uint64_t value) {
    return warp_shuffle(value, 0);
  }
  POLYPATH_DEVICE static unsigned count_of_leading(const this_thread&, bool value) {
    return value ? 1 : 0;
  }
  POLYPATH_DEVICE static unsigned count_of_leading(const this_warp&, bool value) {
    return countr_one(warp_ballot(value));
  }

  [[nodiscard]] POLYPATH_DEVICE std::uint64_t segment_cells() const {
    return std::uint64_t{1} << view_.segment_log2;
  }
  [[nodiscard]] POLYPATH_DEVICE unsigned segment_of(std::uint64_t turn) const {
    return static_cast<unsigned>(cells_.place_of(turn) >> view_.segment_log2);
  }
  template <typename Team>
  POLYPATH_DEVICE static std::uint64_t take(const Team& team, std::uint64_t* counter,
                                            unsigned turns) {
    std::uint64_t first = 0;
    if (team.is_leader()) first = fetch_add<Scope>(counter, std::uint64_t{turns});
    return from_leader(team, first);
  }

  /// Whether the cell of this turn has been read in the lap before.
  [[nodiscard]] POLYPATH_DEVICE bool has_credit(std::uint64_t turn) const {
    // The first lap alone needs none, not each that 32 bits number 0.
    POLYPATH_MUTANT(queue_mutant::no_credit, return true)
    if (turn >> view_.capacity_log2 == 0) return true;
    const std::uint32_t lap = cells_.generation_of(turn);
    std::uint32_t credit =
        load_relaxed<Scope>(view_.credit + segment_of(turn) * queue_view::kWordStride);
    POLYPATH_MUTANT(queue_mutant::credit_of_other_lap, ++credit)
    return static_cast<std::int32_t>(credit - lap) >= 0;
  }

  /// What several have seen at once may be stored in any order: one that is too low is looked for
  /// again.
  POLYPATH_DEVICE void look_at_source(std::uint64_t turn) const {
    if (view_.credit_source == nullptr || has_credit(turn)) return;
    const unsigned word = segment_of(turn) * queue_view::kWordStride;
    store_relaxed<Scope>(view_.credit + word, load_relaxed<Scope>(view_.credit_source + word));
  }

  template <unsigned kItems, typename Team>
  POLYPATH_DEVICE status fill(const Team& team, std::uint64_t first,
                              const T (&items)[kItems]) const {
    // No turn of this call waits for another one of it: the laps before are of earlier calls.
    const std::uint64_t last = first + team.size() * kItems - 1;
    if (!team.all(has_credit(first) && has_credit(last)) &&
        !(await_credit(team, first) && await_credit(team, last)))
      return status::aborted;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i) cells_.put_each(team, first + i * team.size(), items[i]);
    return status::done;
  }
  template <typename Team>
  POLYPATH_DEVICE_NOINLINE bool await_credit(const Team& team, std::uint64_t turn) const {
    const bool arrived = wait_until(
        team, view_.wait_ctx,
        [&] {
          look_at_source(turn);
          return has_credit(turn);
        },
        [&] { return awaited(turn); });
    return team.all(arrived);
  }

  /// How many of a pop's turns were of items, once each thread has its own: those beyond close()
  /// never were.
  template <typename Team>
  POLYPATH_DEVICE unsigned item_count(const Team& team, std::uint64_t first, unsigned turns,
                                      status result) const {
    if (team.all(result == status::done)) return turns;
    if (!team.all(result != status::aborted)) return 0;
    const std::uint64_t end = load_relaxed<Scope>(view_.closed);
    if (end <= first) return 0;
    return end - first < turns ? static_cast<unsigned>(end - first) : turns;
  }

  /// Called by all of the team, once all have read: `turns` from `first` on have been read.
  template <typename Team>
  POLYPATH_DEVICE void return_credit(const Team& team, std::uint64_t first, unsigned turns) const {
    if (!team.is_leader() || turns == 0) return;
    const std::uint64_t cells = segment_cells();
    const std::uint64_t rest = cells - (first & (cells - 1));
    const auto here = static_cast<std::uint32_t>(rest < turns ? rest : turns);
    count_read(first, here);
    if (here < turns) count_read(first + here, turns - here);
  }
  POLYPATH_DEVICE void count_read(std::uint64_t turn, std::uint32_t cells) const {
    const unsigned word = segment_of(turn) * queue_view::kWordStride;
    const std::uint32_t lap = cells_.generation_of(turn) + 1;
    const std::uint32_t before = fetch_add<Scope>(view_.read + word, cells);
    if (before + cells == lap << view_.segment_log2) store_relaxed<Scope>(view_.credit + word, lap);
  }

  [[nodiscard]] POLYPATH_DEVICE wait_target awaited(std::uint64_t turn) const {
    return {wait_error::kNobody, turn, load_relaxed<Scope>(view_.tail), view_.number, 0};
  }

  Cells cells_;
  queue_view view_;
};

}  // namespace polypath::device
