// The cells of queues: a power of two of them, used over and over. Turn t is cell t % capacity in
// lap t / capacity, and a cell says itself which lap it holds.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "polypath/device/group.cuh"
#include "polypath/device/planted.hpp"
#include "polypath/device/scope.cuh"

namespace polypath::device {

/// Defects of queues (planted.hpp).
enum class QueueFault {
  none,
  no_credit,              ///< a producer overwrites what has not been read
  credit_before_reading,  ///< a segment is given back while it is read
  credit_of_other_lap,    ///< a lap too early
  flag_behind_the_data,   ///< instead of with it
  first_packet_alone,     ///< of a cell of several packets, one is looked at
  any_lap,                ///< any but zero is taken for the right one
  two_looks_at_the_head,  ///< try_pop takes turns that another has taken
  no_release,             ///< what was stored before may come behind the item
  no_acquire              ///< what is loaded behind the item may be older
};

/// How an item lies in its cell: in packets of 12 bytes, each with its lap. 1, 2, 4 or 8 of them.
struct packets {
  template <typename T>
  static constexpr unsigned count = sizeof(T) <= 12   ? 1
                                    : sizeof(T) <= 24 ? 2
                                    : sizeof(T) <= 48 ? 4
                                                      : 8;
  template <typename T>
  static constexpr unsigned cell_bytes = count<T> * sizeof(Packet);
};

template <typename T, typename Scope, typename Layout>
class cells {
  static_assert(std::is_trivially_copyable<T>::value, "items are copied as bytes");
  static_assert(sizeof(T) <= 96, "an item has at most 96 bytes: send where larger data lie");

 public:
  static constexpr unsigned kBytes = Layout::template cell_bytes<T>;
  /// Threads of a warp that read one item together; 1: each its own.
  static constexpr unsigned kTogether = Layout::template count<T>;

  POLYPATH_DEVICE cells(unsigned char* begin, unsigned capacity_log2)
      : begin_(begin), capacity_log2_(capacity_log2) {}

  [[nodiscard]] POLYPATH_DEVICE std::uint64_t place_of(std::uint64_t turn) const {
    return turn & ((std::uint64_t{1} << capacity_log2_) - 1);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t lap_of(std::uint64_t turn) const {
    return static_cast<std::uint32_t>(turn >> capacity_log2_);
  }

  /// The item of this thread, with turn first + rank.
  POLYPATH_DEVICE void put_each(const Thread&, std::uint64_t first, const T& item) const {
    Packet all[kTogether];
    spread(item, all);
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) store_packet(first, i, all[i]);
  }
  /// As many neighbours as an item has packets store one item after another together: whole lines,
  /// instead of 16 bytes in each of 32.
  POLYPATH_DEVICE void put_each(const Warp& warp, std::uint64_t first, const T& item) const {
    Packet all[kTogether];
    spread(item, all);
    transpose(all);
    const unsigned place = warp.rank() % kTogether;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i)
      store_packet(first + (warp.rank() - place + i), place, all[i]);
  }

  /// Whether this thread's item, with turn first + rank, is there; then `item` is it.
  POLYPATH_DEVICE bool get_each(const Thread&, std::uint64_t first, T& item) const {
    return get(first, item);
  }
  POLYPATH_DEVICE bool get_each(const Warp& warp, std::uint64_t first, T& item) const {
    if (kTogether == 1) return get(first + warp.rank(), item);
    const unsigned place = warp.rank() % kTogether;
    const unsigned neighbours = warp.rank() - place;
    Packet all[kTogether];
    bool is_there = true;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) all[i] = load_packet(first + neighbours + i, place);
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i)
      is_there = is_there && is_of(all[i], first + neighbours + i, place);
    // All or nothing: what is there in part, each thread looks for by itself.
    if (!warp_all(is_there)) return false;
    transpose(all);
    gather(all, item);
    return true;
  }
  POLYPATH_DEVICE bool get(std::uint64_t turn, T& item) const {
    Packet all[kTogether];
    bool is_there = true;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) all[i] = load_packet(turn, i);
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) is_there = is_there && is_of(all[i], turn, i);
    if (is_there) gather(all, item);
    return is_there;
  }

 private:
  POLYPATH_DEVICE void store_packet(std::uint64_t turn, unsigned place, Packet packet) const {
    Packet* const to = cell_of(turn) + place;
    packet.lap = lap_of(turn) + 1;
    if (planted(QueueFault::flag_behind_the_data)) {
      const std::uint64_t low = packet.data[0] | std::uint64_t{packet.data[1]} << 32;
      store_relaxed<Scope>(reinterpret_cast<std::uint64_t*>(to), low);
      store_relaxed<Scope>(&to->data[2], packet.data[2]);
      store_relaxed<Scope>(&to->lap, packet.lap);
    } else {
      store_relaxed<Scope>(to, packet);
    }
  }
  [[nodiscard]] POLYPATH_DEVICE Packet load_packet(std::uint64_t turn, unsigned place) const {
    return load_relaxed<Scope>(cell_of(turn) + place);
  }
  [[nodiscard]] POLYPATH_DEVICE bool is_of(const Packet& packet, std::uint64_t turn,
                                           unsigned place) const {
    if (planted(QueueFault::first_packet_alone) && place > 0) return true;
    if (planted(QueueFault::any_lap)) return packet.lap != 0;
    return packet.lap == lap_of(turn) + 1;
  }

  /// Packet p of thread t to packet t of thread p, among as many threads as there are packets.
  POLYPATH_DEVICE static void transpose(Packet (&all)[kTogether]) {
    POLYPATH_UNROLL
    for (unsigned step = kTogether / 2; step > 0; step /= 2) {
      const bool is_upper = (rank_in_warp() & step) != 0;
      POLYPATH_UNROLL
      for (unsigned low = 0; low < kTogether; ++low) {
        if ((low & step) != 0) continue;
        POLYPATH_UNROLL
        for (unsigned word = 0; word < 3; ++word) {
          std::uint32_t& a = all[low].data[word];
          std::uint32_t& b = all[low | step].data[word];
          const std::uint32_t other = warp_shuffle_xor(is_upper ? a : b, step);
          (is_upper ? a : b) = other;
        }
      }
    }
  }

  POLYPATH_DEVICE static void spread(const T& item, Packet (&all)[kTogether]) {
    std::uint32_t words[kTogether * 3] = {};
    memcpy(words, &item, sizeof(T));
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether * 3; ++i) all[i / 3].data[i % 3] = words[i];
  }
  POLYPATH_DEVICE static void gather(const Packet (&all)[kTogether], T& item) {
    std::uint32_t words[kTogether * 3];
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether * 3; ++i) words[i] = all[i / 3].data[i % 3];
    memcpy(&item, words, sizeof(T));
  }

  [[nodiscard]] POLYPATH_DEVICE Packet* cell_of(std::uint64_t turn) const {
    return reinterpret_cast<Packet*>(begin_ + place_of(turn) * kBytes);
  }

  unsigned char* begin_;
  unsigned capacity_log2_;
};

}  // namespace polypath::device
