// The cells of queues: a power of two of them, used over and over. Turn t is cell t % capacity in
// lap t / capacity, and a cell says itself which lap it holds.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/transpose.cuh"
#include "polypath/device/group.cuh"
#include "polypath/device/scope.cuh"
#include "polypath/device/status.hpp"
#include "polypath/device/wait.cuh"

namespace polypath::device {

/// How an item lies in its cell: in packets of 12 bytes, each with its lap. 1, 2, 4 or 8 of them.
struct ll {
  template <typename T>
  static constexpr unsigned count = ll_packet_count(sizeof(T));
  template <typename T>
  static constexpr unsigned cell_bytes = count<T> * sizeof(ll_packet);
};

namespace detail {

/// What the cells of all layouts have: places and laps of turns, and the wait for an item. `Cells`
/// is derived from it, and has get(), load_items(), may_be_there() and kTogether.
template <typename Cells, typename T>
class ring_base {
 public:
  POLYPATH_DEVICE ring_base(unsigned char* begin, unsigned capacity_log2)
      : begin_(begin), capacity_log2_(capacity_log2) {}

  [[nodiscard]] POLYPATH_DEVICE std::uint64_t place_of(std::uint64_t turn) const {
    return turn & ((std::uint64_t{1} << capacity_log2_) - 1);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t generation_of(std::uint64_t turn) const {
    return static_cast<std::uint32_t>(turn >> capacity_log2_);
  }

  /// Waits for this thread's item, with turn first + rank, unless it has it (`is_there`): `done`.
  /// `closed` where `will_not_come()` said so, `aborted` when the wait was too long. All threads of
  /// the team call it; each has its own answer.
  template <typename Team, typename WillNotCome, typename WhatFor>
  POLYPATH_DEVICE status wait_items(const Team& team, const wait_context& wait_ctx,
                                    std::uint64_t first, T& item, bool is_there,
                                    const WillNotCome& will_not_come,
                                    const WhatFor& awaited) const {
    for (unsigned i = 1; i < detail::kSpinsPerPoll; ++i) {
      if (Cells::kTogether > 1 || !is_there) is_there = self().load_items(team, first, item);
      if (team.all(is_there)) return status::done;
    }
    T local_item = item;  // which stays in registers
    const status result = await_long(team, wait_ctx, first + team.rank(), local_item, is_there,
                                     will_not_come, awaited);
    if (!is_there && result == status::done) item = local_item;
    return result;
  }

 protected:
  unsigned char* begin_;
  unsigned capacity_log2_;

 private:
  [[nodiscard]] POLYPATH_DEVICE const Cells& self() const {
    return static_cast<const Cells&>(*this);
  }
  template <typename Team, typename WillNotCome, typename WhatFor>
  POLYPATH_DEVICE_NOINLINE status await_long(const Team& team, const wait_context& wait_ctx,
                                             std::uint64_t turn, T& item, bool is_there,
                                             const WillNotCome& will_not_come,
                                             const WhatFor& awaited) const {
    bool is_closed = false;
    const bool arrived = wait_until(
        team, wait_ctx,
        [&] {
          if (is_there || (self().may_be_there(turn) && self().get(turn, item))) return true;
          is_closed = will_not_come(turn);
          return is_closed;
        },
        [&] { return awaited(turn); });
    if (!arrived) return status::aborted;
    return is_closed ? status::closed : status::done;
  }
};

}  // namespace detail

template <typename T, typename Scope, typename Layout>
class ring_buffer : public detail::ring_base<ring_buffer<T, Scope, Layout>, T> {
  using Ring = detail::ring_base<ring_buffer<T, Scope, Layout>, T>;
  static_assert(std::is_trivially_copyable<T>::value, "items are copied as bytes");
  static_assert(sizeof(T) <= 96, "an item has at most 96 bytes: send where larger data lie");

 public:
  static constexpr unsigned kBytes = Layout::template cell_bytes<T>;
  /// Threads of a warp that read one item together; 1: each its own.
  static constexpr unsigned kTogether = Layout::template count<T>;

  using Ring::generation_of;
  using Ring::place_of;
  using Ring::Ring;

  /// The item of this thread, with turn first + rank.
  POLYPATH_DEVICE void put_each(const this_thread&, std::uint64_t first, const T& item) const {
    ll_packet all[kTogether];
    spread(item, all);
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) store_packet(first, i, all[i]);
  }
  /// As many neighbours as an item has packets store one item after another together: whole lines,
  /// instead of 16 bytes in each of 32.
  POLYPATH_DEVICE void put_each(const this_warp& warp, std::uint64_t first, const T& item) const {
    ll_packet all[kTogether];
    spread(item, all);
    detail::transpose<3>(all);
    const unsigned place = warp.rank() % kTogether;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i)
      store_packet(first + (warp.rank() - place + i), place, all[i]);
  }

  /// Whether this thread's item, with turn first + rank, is there; then `item` is it.
  POLYPATH_DEVICE bool load_items(const this_thread&, std::uint64_t first, T& item) const {
    return get(first, item);
  }
  POLYPATH_DEVICE bool load_items(const this_warp& warp, std::uint64_t first, T& item) const {
    if (kTogether == 1) return get(first + warp.rank(), item);
    const unsigned place = warp.rank() % kTogether;
    const unsigned neighbours = warp.rank() - place;
    ll_packet all[kTogether];
    bool is_there = true;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) all[i] = load_packet(first + neighbours + i, place);
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i)
      is_there = is_there && is_of(all[i], first + neighbours + i, place);
    // All or nothing: what is there in part, each thread looks for by itself.
    if (!warp_all(is_there)) return false;
    detail::transpose<3>(all);
    gather(all, item);
    return true;
  }
  /// By one access, where get() takes one for each packet: a long wait of thousands of threads
  /// loads the memory that producers store to no more than it must. False: it is not there yet.
  [[nodiscard]] POLYPATH_DEVICE bool may_be_there(std::uint64_t turn) const {
    POLYPATH_MUTANT(queue_mutant::looks_at_all_packets, return true)
    if (kTogether == 1) return true;
    return is_of(load_packet(turn, 0), turn, 0);
  }
  POLYPATH_DEVICE bool get(std::uint64_t turn, T& item) const {
    ll_packet all[kTogether];
    bool is_there = true;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) all[i] = load_packet(turn, i);
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) is_there = is_there && is_of(all[i], turn, i);
    if (is_there) gather(all, item);
    return is_there;
  }

 private:
  POLYPATH_DEVICE void store_packet(std::uint64_t turn, unsigned place, ll_packet packet) const {
    ll_packet* const to = slot_of(turn) + place;
    packet.lap = generation_of(turn) + 1;
    POLYPATH_MUTANT_ELSE(queue_mutant::flag_behind_the_data, store_in_parts<Scope>(to, packet))
    store_relaxed<Scope>(to, packet);
  }
  [[nodiscard]] POLYPATH_DEVICE ll_packet load_packet(std::uint64_t turn, unsigned place) const {
    return load_relaxed<Scope>(slot_of(turn) + place);
  }
  [[nodiscard]] POLYPATH_DEVICE bool is_of(const ll_packet& packet, std::uint64_t turn,
                                           [[maybe_unused]] unsigned place) const {
    POLYPATH_MUTANT(queue_mutant::first_packet_alone, if (place > 0) return true)
    POLYPATH_MUTANT(queue_mutant::any_lap, return packet.lap != 0)
    return packet.lap == generation_of(turn) + 1;
  }

  POLYPATH_DEVICE static void spread(const T& item, ll_packet (&all)[kTogether]) {
    std::uint32_t words[kTogether * 3] = {};
    memcpy(words, &item, sizeof(T));
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether * 3; ++i) all[i / 3].data[i % 3] = words[i];
  }
  POLYPATH_DEVICE static void gather(const ll_packet (&all)[kTogether], T& item) {
    std::uint32_t words[kTogether * 3];
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether * 3; ++i) words[i] = all[i / 3].data[i % 3];
    memcpy(&item, words, sizeof(T));
  }

  [[nodiscard]] POLYPATH_DEVICE ll_packet* slot_of(std::uint64_t turn) const {
    return reinterpret_cast<ll_packet*>(this->begin_ + place_of(turn) * kBytes);
  }
};

}  // namespace polypath::device
