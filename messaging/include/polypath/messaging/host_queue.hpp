// The CPU's side of queues and pairs (polypath/device/queue.cuh, spsc_queue.cuh): the same rings,
// of which one side may be a GPU. Views come from polypath_queue_view(). C++17, header only.
//
// Stores of a thread before a push are visible after pop_acquire() on a GPU, and after pop() here;
// stores of a GPU before push_release() are visible to the thread that pops here.
//
// Waits end with `aborted` at an abort of the communicator, and at the time limit of the view. Then
// the queue is of no use any more: tell the others by polypath_comm_abort(). After an abort
// nothing is pushed: push and try_push say `aborted`, also where there is room. Pops first give
// what has come; once there is nothing pop and try_pop say so too, rather than `closed`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "polypath/device/queue_view.hpp"
#include "polypath/device/spsc_view.hpp"
#include "polypath/device/status.hpp"
#include "polypath/messaging/host_ll_packet.hpp"

namespace polypath::messaging {
namespace detail {

/// Any number of threads push, any number pop. Thread-safe.
template <typename Bytes>
class HostQueue {
 public:
  HostQueue(const device::queue_view& view, Bytes item)
      : cells_(view.cells, view.capacity_log2, item), view_(view) {}

  /// `awaited`, here and below: the turn at which a wait ended without success.
  device::status push(const unsigned char* items, std::size_t count,
                      std::uint64_t* awaited = nullptr) const {
    if (was_aborted(view_.wait_ctx)) return device::status::aborted;
    while (count > 0) {
      const std::size_t turns = count < segment_cells() ? count : segment_cells();
      const std::uint64_t first = __atomic_fetch_add(view_.tail, turns, __ATOMIC_RELAXED);
      if (!wait_for_credit(first)) return aborted_at(first, awaited);
      if (!wait_for_credit(first + turns - 1)) return aborted_at(first + turns - 1, awaited);
      put(first, items, turns);
      items += turns * cells_.item_bytes();
      count -= turns;
    }
    return device::status::done;
  }
  device::status try_push(const unsigned char* items, std::size_t count) const {
    if (count > segment_cells()) return device::status::too_many_items;
    if (was_aborted(view_.wait_ctx)) return device::status::aborted;
    if (count == 0) return device::status::done;
    std::uint64_t seen = load_word(view_.tail);
    do {
      if (!has_credit(seen) || !has_credit(seen + count - 1)) return device::status::full;
    } while (!__atomic_compare_exchange_n(view_.tail, &seen, seen + count, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    put(seen, items, count);
    return device::status::done;
  }
  device::status pop(unsigned char* items, std::size_t count, std::size_t& got,
                     std::uint64_t* awaited = nullptr) const {
    for (got = 0; got < count;) {
      const std::size_t rest = count - got;
      const std::size_t turns = rest < segment_cells() ? rest : segment_cells();
      const std::uint64_t first = __atomic_fetch_add(view_.head, turns, __ATOMIC_RELAXED);
      std::size_t here = 0;
      device::status result = device::status::done;
      while (here < turns && result == device::status::done) {
        result = await(first + here, items + (got + here) * cells_.item_bytes());
        if (result == device::status::done) ++here;
      }
      finish(first, here);
      got += here;
      if (result == device::status::aborted) return aborted_at(first + here, awaited);
      if (result != device::status::done) return result;
    }
    return done_with(got);
  }
  device::status try_pop(unsigned char* items, std::size_t count, std::size_t& got) const {
    got = 0;
    if (count > segment_cells()) count = segment_cells();
    for (std::uint64_t first = load_word(view_.head); count > 0;) {
      std::size_t here = 0;
      // The items are valid if the head has not moved since: no cell is returned before.
      while (here < count && cells_.get(first + here, items + here * cells_.item_bytes())) ++here;
      if (here == 0) return without_item(first);
      if (!__atomic_compare_exchange_n(view_.head, &first, first + here, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED))
        continue;
      finish(first, here);
      got = here;
      break;
    }
    return done_with(got);
  }
  void close() const { store_word(view_.closed, load_word(view_.tail)); }

 private:
  [[nodiscard]] std::uint64_t segment_cells() const {
    return std::uint64_t{1} << view_.segment_log2;
  }
  [[nodiscard]] std::size_t word_of(std::uint64_t turn) const {
    return static_cast<std::size_t>(cells_.place_of(turn) >> view_.segment_log2) *
           device::queue_view::kWordStride;
  }
  [[nodiscard]] bool has_credit(std::uint64_t turn) const {
    // The first lap alone needs none, not each that 32 bits number 0.
    if (turn >> view_.capacity_log2 == 0) return true;
    const std::uint32_t lap = cells_.generation_of(turn);
    return static_cast<std::int32_t>(load_word(view_.credit + word_of(turn)) - lap) >= 0;
  }
  bool wait_for_credit(std::uint64_t turn) const {
    return has_credit(turn) || wait_on_host(view_.wait_ctx, [&] { return has_credit(turn); });
  }
  void put(std::uint64_t first, const unsigned char* items, std::size_t turns) const {
    for (std::size_t i = 0; i < turns; ++i) {
      if (i == 0 || kEachReleases) release_before(cells_.slot_of(first + i));
      cells_.put(first + i, items + i * cells_.item_bytes());
    }
  }
  device::status await(std::uint64_t turn, unsigned char* item) const {
    if (cells_.get(turn, item)) return device::status::done;
    bool is_closed = false;
    const bool arrived = wait_on_host(view_.wait_ctx, [&] {
      if (cells_.get(turn, item)) return true;
      // What was pushed before close() may come after it.
      is_closed = load_word(view_.closed) <= turn;
      return is_closed;
    });
    if (!arrived) return device::status::aborted;
    return is_closed ? without_item(turn) : device::status::done;
  }
  /// The status of a turn without an item. A producer that timed out may close: then items are
  /// missing.
  [[nodiscard]] device::status without_item(std::uint64_t turn) const {
    const bool is_closed = load_word(view_.closed) <= turn;
    if (was_aborted(view_.wait_ctx)) return device::status::aborted;
    return is_closed ? device::status::closed : device::status::empty;
  }
  [[nodiscard]] device::status done_with(std::size_t got) const {
    return got == 0 && was_aborted(view_.wait_ctx) ? device::status::aborted : device::status::done;
  }
  static device::status aborted_at(std::uint64_t turn, std::uint64_t* awaited) {
    if (awaited != nullptr) *awaited = turn;
    return device::status::aborted;
  }
  /// `turns` from `first` on have been read.
  void finish(std::uint64_t first, std::size_t turns) const {
    if (turns == 0) return;
    for (std::size_t i = 0; i < (kEachReleases ? turns : 1); ++i)
      acquire_behind(cells_.slot_of(first + i));
    const std::uint64_t rest = segment_cells() - (first & (segment_cells() - 1));
    const std::uint64_t here = rest < turns ? rest : turns;
    count_read(first, static_cast<std::uint32_t>(here));
    if (here < turns) count_read(first + here, static_cast<std::uint32_t>(turns - here));
  }
  void count_read(std::uint64_t turn, std::uint32_t cells) const {
    const std::size_t word = word_of(turn);
    const std::uint32_t lap = cells_.generation_of(turn) + 1;
    const std::uint32_t before = __atomic_fetch_add(view_.read + word, cells, __ATOMIC_ACQ_REL);
    if (before + cells == lap << view_.segment_log2) store_word(view_.credit + word, lap);
  }

#if defined(__SANITIZE_THREAD__)
  static constexpr bool kEachReleases = true;  // a pop acquires the release of its item
#else
  static constexpr bool kEachReleases = false;
#endif

  HostCells<Bytes> cells_;
  device::queue_view view_;
};

inline const unsigned char* bytes_of(const void* items) {
  return static_cast<const unsigned char*>(items);
}
inline unsigned char* bytes_of(void* items) { return static_cast<unsigned char*>(items); }

}  // namespace detail

/// Items are of T, as on the GPU. Thread-safe; it owns nothing.
template <typename T>
class host_queue {
  static_assert(std::is_trivially_copyable<T>::value, "items are copied as bytes");
  static_assert(sizeof(T) <= device::kMaxLLItemBytes,
                "an item has at most 96 bytes: send where larger data lie");

 public:
  explicit host_queue(const device::queue_view& view) : queue_(view, {}) {}

  /// Waits while the queue is full. Items of one call have turns in a row, a segment at a time.
  device::status push(const T* items, std::size_t count) const {
    return queue_.push(detail::bytes_of(items), count);
  }
  device::status push(const T& item) const { return push(&item, 1); }
  /// Never waits: `full`, and nothing was pushed, when there is no room for all. `too_many_items`:
  /// more than a segment has cells.
  device::status try_push(const T* items, std::size_t count) const {
    return queue_.try_push(detail::bytes_of(items), count);
  }

  /// Waits until `count` items have come, or the queue is closed. `got`: as many have.
  device::status pop(T* items, std::size_t count, std::size_t* got = nullptr) const {
    std::size_t popped = 0;
    const device::status result = queue_.pop(detail::bytes_of(items), count, popped);
    if (got != nullptr) *got = popped;
    return result;
  }
  device::status pop(T& item) const { return pop(&item, 1); }
  /// Takes what is there, `count` items at most, and no more than a segment; items after them may
  /// be overwritten. `empty`, `closed`: there was none.
  device::status try_pop(T* items, std::size_t count, std::size_t* got) const {
    return queue_.try_pop(detail::bytes_of(items), count, *got);
  }

  /// As queue::close().
  void close() const { queue_.close(); }

 private:
  detail::HostQueue<detail::FixedBytes<sizeof(T)>> queue_;
};

}  // namespace polypath::messaging
