// The CPU's sides of a pair (polypath/device/spsc_queue.cuh), as host_queue.hpp has them for
// queues, after an abort too: one thread at a time pushes, one pops, and no counter is shared.
#pragma once

#include "polypath/messaging/host_queue.hpp"

namespace polypath::messaging {
namespace detail {

template <typename Bytes>
class HostPairProducer {
 public:
  HostPairProducer(const device::spsc_view& view, Bytes item)
      : cells_(view.cells, view.capacity_log2, item),
        view_(view),
        turn_(load_word(view.sent)),
        read_(load_word(view.credit)) {}

  device::status push(const unsigned char* items, std::size_t count) {
    if (was_aborted(view_.wait_ctx)) return device::status::aborted;
    while (count > 0) {
      if (!has_room(1) && !wait_on_host(view_.wait_ctx, [&] { return looks_for_room(1); }))
        return device::status::aborted;
      const std::uint64_t room = (std::uint64_t{1} << view_.capacity_log2) - (turn_ - read_);
      const std::size_t turns = count < room ? count : static_cast<std::size_t>(room);
      put(items, turns);
      items += turns * cells_.item_bytes();
      count -= turns;
    }
    return device::status::done;
  }
  device::status try_push(const unsigned char* items, std::size_t count) {
    if (count > std::uint64_t{1} << view_.segment_log2) return device::status::too_many_items;
    if (was_aborted(view_.wait_ctx)) return device::status::aborted;
    if (!has_room(count) && !looks_for_room(count)) return device::status::full;
    put(items, count);
    return device::status::done;
  }
  /// The next turn; after a push that ended as aborted, the turn of that push.
  [[nodiscard]] std::uint64_t turn() const { return turn_; }

 private:
  [[nodiscard]] bool has_room(std::size_t turns) const {
    return turn_ + turns - read_ <= std::uint64_t{1} << view_.capacity_log2;
  }
  bool looks_for_room(std::size_t turns) {
    read_ = load_word(view_.credit);
    return has_room(turns);
  }
  void put(const unsigned char* items, std::size_t turns) {
    for (std::size_t i = 0; i < turns; ++i, ++turn_) {
      if (i == 0) release_before(cells_.slot_of(0));  // one word stands for all: one thread pops
      cells_.put(turn_, items + i * cells_.item_bytes());
    }
    store_word(view_.sent, turn_);  // near; for the next producer
  }

  HostCells<Bytes> cells_;
  device::spsc_view view_;
  std::uint64_t turn_;
  std::uint64_t read_;
};

template <typename Bytes>
class HostPairConsumer {
 public:
  HostPairConsumer(const device::spsc_view& view, Bytes item)
      : cells_(view.cells, view.capacity_log2, item),
        view_(view),
        turn_(load_word(view.received)),
        given_(turn_) {}

  device::status pop(unsigned char* items, std::size_t count, std::size_t& got) {
    for (got = 0; got < count; ++got) {
      unsigned char* const item = items + got * cells_.item_bytes();
      if (!cells_.get(turn_, item)) {
        return_credit();
        if (!wait_on_host(view_.wait_ctx, [&] { return cells_.get(turn_, item); })) {
          leave();
          return device::status::aborted;
        }
      }
      take_one();
    }
    leave();
    return count == 0 && was_aborted(view_.wait_ctx) ? device::status::aborted
                                                     : device::status::done;
  }
  device::status try_pop(unsigned char* items, std::size_t count, std::size_t& got) {
    for (got = 0; got < count && cells_.get(turn_, items + got * cells_.item_bytes()); ++got)
      take_one();
    if (got == 0) {
      return_credit();
      if (was_aborted(view_.wait_ctx)) return device::status::aborted;
      return count == 0 ? device::status::done : device::status::empty;
    }
    leave();
    return device::status::done;
  }
  /// The next turn; after a pop that ended as aborted, the turn of that pop.
  [[nodiscard]] std::uint64_t turn() const { return turn_; }

 private:
  void take_one() {
    ++turn_;
    if ((turn_ - given_) >> view_.segment_log2 != 0) return_credit();
  }
  void return_credit() {
    if (given_ == turn_) return;
    store_word(view_.credit, turn_);
    given_ = turn_;
  }
  void leave() {
    acquire_behind(cells_.slot_of(0));
    store_word(view_.received, turn_);
  }

  HostCells<Bytes> cells_;
  device::spsc_view view_;
  std::uint64_t turn_;
  std::uint64_t given_;
};

}  // namespace detail

/// One thread at a time. A producer that is created later goes on where this one was.
template <typename T>
class host_spsc_producer {
  static_assert(std::is_trivially_copyable<T>::value, "items are copied as bytes");
  static_assert(sizeof(T) <= device::kMaxLLItemBytes,
                "an item has at most 96 bytes: send where larger data lie");

 public:
  explicit host_spsc_producer(const device::spsc_view& view) : pair_(view, {}) {}

  /// Waits while there is no room.
  device::status push(const T* items, std::size_t count) {
    return pair_.push(detail::bytes_of(items), count);
  }
  device::status push(const T& item) { return push(&item, 1); }
  /// Never waits: `full`, and nothing was pushed, when there is no room for all.
  device::status try_push(const T* items, std::size_t count) {
    return pair_.try_push(detail::bytes_of(items), count);
  }

 private:
  detail::HostPairProducer<detail::FixedBytes<sizeof(T)>> pair_;
};

/// One thread at a time. A consumer that is created later goes on where this one was.
template <typename T>
class host_spsc_consumer {
  static_assert(std::is_trivially_copyable<T>::value, "items are copied as bytes");

 public:
  explicit host_spsc_consumer(const device::spsc_view& view) : pair_(view, {}) {}

  /// Waits until `count` items have come.
  device::status pop(T* items, std::size_t count, std::size_t* got = nullptr) {
    std::size_t popped = 0;
    const device::status result = pair_.pop(detail::bytes_of(items), count, popped);
    if (got != nullptr) *got = popped;
    return result;
  }
  device::status pop(T& item) { return pop(&item, 1); }
  /// Takes what is there, `count` items at most. `empty`: there was none.
  device::status try_pop(T* items, std::size_t count, std::size_t* got) {
    return pair_.try_pop(detail::bytes_of(items), count, *got);
  }

 private:
  detail::HostPairConsumer<detail::FixedBytes<sizeof(T)>> pair_;
};

}  // namespace polypath::messaging
