// What a channel is made of (channel.cuh): lists in the order in which things came, and what is
// told of a message.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/channel_view.hpp"
#include "polypath/device/detail/ring_buffer.cuh"
#include "polypath/device/scope.cuh"

namespace polypath::device {

namespace detail {

/// A message's bytes in a ring.
struct channel_unit {
  std::uint32_t words[3];
};
/// What a receiver tells the sender of a large message.
struct channel_cts {
  std::uint32_t offset[2];   ///< in the window
  std::uint32_t bytes[2];    ///< that the receive takes
  std::uint32_t place;       ///< slot of the receive, and the window above its kSlotBits
  std::uint32_t generation;  ///< of the receive
  static constexpr unsigned kSlotBits = 10;
};
struct channel_entry {
  envelope header;
  std::uint32_t value;
};

POLYPATH_DEVICE std::uint64_t join(const std::uint32_t (&halves)[2]) {
  return halves[0] | std::uint64_t{halves[1]} << 32;
}

/// Entries in the order of their coming, in memory of one warp, whose threads all call alike. What
/// is removed leaves a hole; holes go when the end comes around.
class channel_list {
 public:
  static constexpr std::uint32_t kNowhere = 0xFFFFFFFF;

  POLYPATH_DEVICE channel_list(unsigned char* at, std::uint32_t capacity_log2)
      : at_(reinterpret_cast<ll_packet*>(at)), capacity_(1U << capacity_log2) {}
  /// What an earlier kernel left.
  POLYPATH_DEVICE void reopen(std::uint32_t end) { end_ = end; }

  [[nodiscard]] POLYPATH_DEVICE std::uint32_t end() const { return end_; }
  [[nodiscard]] POLYPATH_DEVICE bool is_empty() const { return end_ == 0; }

  /// Its own entry of 32 for each thread; false where there is none.
  POLYPATH_DEVICE bool get(std::uint32_t place, channel_entry& entry) const {
    if (place >= end_) return false;
    const ll_packet packet = load_relaxed<device_scope>(at_ + place);
    entry = {envelope_of(packet.data[0] | std::uint64_t{packet.data[1]} << 32), packet.data[2]};
    return packet.lap != 0;
  }
  /// False: there is no room.
  POLYPATH_DEVICE bool add(const channel_entry& entry) {
    if (end_ == capacity_) close_up();
    if (end_ == capacity_) return false;
    put(end_, entry);
    ++end_;
    warp_sync();
    return true;
  }
  POLYPATH_DEVICE void change(std::uint32_t place, const channel_entry& entry) {
    put(place, entry);
    warp_sync();
  }
  POLYPATH_DEVICE void remove(std::uint32_t place) {
    if (rank_in_warp() == 0) store_relaxed<device_scope>(at_ + place, ll_packet{{0, 0, 0}, 0});
    warp_sync();
    // From the end, holes go at once: a list whose entries are all done is empty.
    while (end_ > 0) {
      const std::uint32_t first = (end_ - 1) / kWarp * kWarp;
      channel_entry entry{};
      const unsigned live = warp_ballot(get(first + rank_in_warp(), entry));
      if (live != 0) {
        end_ = first + kWarp - leading_zeros(live);
        return;
      }
      end_ = first;
    }
    begin_ = 0;
  }
  /// The place of the first entry with `is_match(entry)`; sets `match` to it, for all threads.
  template <typename Wanted>
  POLYPATH_DEVICE std::uint32_t find(const Wanted& is_match, channel_entry& match,
                                     bool from_the_end = false) {
    std::uint32_t result = kNowhere;
    for (std::uint32_t first = begin_; first < end_; first += kWarp) {
      channel_entry entry{};
      const bool is_live = get(first + rank_in_warp(), entry);
      if (first == begin_ && first + kWarp <= end_ && !warp_any(is_live)) {
        begin_ += kWarp;
        continue;
      }
      const unsigned those = warp_ballot(is_live && is_match(entry));
      if (those == 0) continue;
      const unsigned lane = from_the_end ? kWarp - 1 - leading_zeros(those) : countr_one(~those);
      match.header = envelope_of(warp_shuffle(bits_of(entry.header), lane));
      match.value = warp_shuffle(entry.value, lane);
      result = first + lane;
      if (!from_the_end) break;
    }
    return result;
  }

 private:
  POLYPATH_DEVICE static unsigned leading_zeros(unsigned bits) {
    for (unsigned shift = 1; shift < 32; shift *= 2) bits |= bits >> shift;
    return 32 - popcount(bits);
  }
  POLYPATH_DEVICE void put(std::uint32_t place, const channel_entry& entry) {
    const std::uint64_t bits = bits_of(entry.header);
    if (rank_in_warp() == 0)
      store_relaxed<device_scope>(at_ + place,
                                  ll_packet{{static_cast<std::uint32_t>(bits),
                                             static_cast<std::uint32_t>(bits >> 32), entry.value},
                                            1});
  }
  POLYPATH_DEVICE_NOINLINE void close_up() {
    std::uint32_t kept = 0;
    for (std::uint32_t first = 0; first < end_; first += kWarp) {
      channel_entry entry{};
      const bool is_live = get(first + rank_in_warp(), entry);
      const unsigned live = warp_ballot(is_live);
      const unsigned before = live & ((1U << rank_in_warp()) - 1);
      warp_sync();  // all have loaded
      if (is_live) {
        const std::uint64_t bits = bits_of(entry.header);
        store_relaxed<device_scope>(at_ + kept + popcount(before),
                                    ll_packet{{static_cast<std::uint32_t>(bits),
                                               static_cast<std::uint32_t>(bits >> 32), entry.value},
                                              1});
      }
      kept += popcount(live);
      warp_sync();
    }
    begin_ = 0;
    end_ = kept;
  }

  ll_packet* at_;
  std::uint32_t capacity_;
  std::uint32_t begin_ = 0;  ///< a multiple of 32: before it are holes
  std::uint32_t end_ = 0;
};

/// Words of units from and to memory of a program, at any address.
class channel_bytes {
 public:
  POLYPATH_DEVICE static void read(const unsigned char* from, std::uint32_t bytes,
                                   std::uint32_t* words) {
    if (has_words(from) && bytes % 4 == 0) {
      for (std::uint32_t i = 0; i < bytes / 4; ++i)
        words[i] = load(reinterpret_cast<const std::uint32_t*>(from) + i);
    } else {
      for (std::uint32_t i = 0; i < bytes; ++i)
        words[i / 4] |= std::uint32_t{load(from + i)} << 8 * (i % 4);
    }
  }
  POLYPATH_DEVICE static void write(unsigned char* to, std::uint32_t bytes,
                                    const std::uint32_t* words) {
    if (has_words(to) && bytes % 4 == 0) {
      for (std::uint32_t i = 0; i < bytes / 4; ++i)
        store(reinterpret_cast<std::uint32_t*>(to) + i, words[i]);
    } else {
      for (std::uint32_t i = 0; i < bytes; ++i)
        store(to + i, static_cast<unsigned char>(words[i / 4] >> 8 * (i % 4)));
    }
  }

 private:
  POLYPATH_DEVICE static bool has_words(const void* at) {
    return reinterpret_cast<std::uint64_t>(at) % 4 == 0;
  }
};

}  // namespace detail
}  // namespace polypath::device
