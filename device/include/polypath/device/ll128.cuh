// The layout `ll128` of queues and pairs: cells of 128 bytes, 120 of them data, with one flag,
// which a warp stores whole. A quarter more data than packets have, but nothing that PTX promises:
// bytes of one line may come one after another. For paths that the host has proven
// (POLYPATH_PROTOCOL_LL128 of polypath/messaging/queue.h), between GPUs, and never through host
// memory.
#pragma once

#include "polypath/device/detail/ring_buffer.cuh"

namespace polypath::device {

struct ll128 {
  template <typename T>
  static constexpr unsigned count = 8;
  template <typename T>
  static constexpr unsigned cell_bytes = kLineBytes;
};

/// As the cells of packets. Groups are whole warps.
template <typename T, typename Scope>
class ring_buffer<T, Scope, ll128> : public detail::ring_base<ring_buffer<T, Scope, ll128>, T> {
  using Ring = detail::ring_base<ring_buffer<T, Scope, ll128>, T>;
  static_assert(std::is_trivially_copyable<T>::value, "items are copied as bytes");
  static_assert(sizeof(T) <= kMaxLL128ItemBytes, "an item of a line has at most 120 bytes");

 public:
  static constexpr unsigned kBytes = kLineBytes;
  static constexpr unsigned kTogether = 8;

  using Ring::generation_of;
  using Ring::place_of;
  using Ring::Ring;

  /// A single thread cannot store a 128-byte line atomically. Use a warp or a block.
  template <typename Alone>
  POLYPATH_DEVICE void put_each(const Alone&, std::uint64_t, const T&) const {
    static_assert(sizeof(Alone) == 0, "lines are pushed by warps and blocks");
  }
  POLYPATH_DEVICE void put_each(const this_warp& warp, std::uint64_t first, const T& item) const {
    const unsigned place = warp.rank() % kTogether;
    const std::uint64_t neighbours = first + (warp.rank() - place);
    Part all[kTogether] = {};
    memcpy(all, &item, sizeof(T));
    detail::transpose<4>(all);
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) {
      const bool has_flag = place == kTogether - 1;
      const std::uint32_t lap = generation_of(neighbours + i) + 1;
      store_line<Scope>(parts_of(neighbours + i) + place,
                        ll_packet{{all[i].data[0], all[i].data[1], has_flag ? lap : all[i].data[2]},
                                  has_flag ? lap : all[i].data[3]});
    }
  }

  POLYPATH_DEVICE bool load_items(const this_thread&, std::uint64_t first, T& item) const {
    return get(first, item);
  }
  POLYPATH_DEVICE bool load_items(const this_warp& warp, std::uint64_t first, T& item) const {
    const unsigned place = warp.rank() % kTogether;
    const std::uint64_t neighbours = first + (warp.rank() - place);
    Part all[kTogether];
    bool is_there = true;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) {
      const ll_packet packet = load_line<Scope>(parts_of(neighbours + i) + place);
      all[i] = {{packet.data[0], packet.data[1], packet.data[2], packet.lap}};
      is_there = is_there && (place != kTogether - 1 || is_flag(packet, neighbours + i));
    }
    if (!warp_all(is_there)) return false;
    detail::transpose<4>(all);
    memcpy(&item, all, sizeof(T));
    return true;
  }
  [[nodiscard]] POLYPATH_DEVICE bool may_be_there(std::uint64_t) const { return true; }
  /// By one thread: the flag first, then what came with it.
  POLYPATH_DEVICE bool get(std::uint64_t turn, T& item) const {
    const ll_packet* const from = parts_of(turn);
    if (!is_flag(load_relaxed<Scope>(from + kTogether - 1), turn)) return false;
    fence<Scope>();
    Part all[kTogether];
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) {
      const ll_packet packet = load_relaxed<Scope>(from + i);
      all[i] = {{packet.data[0], packet.data[1], packet.data[2], packet.lap}};
    }
    memcpy(&item, all, sizeof(T));
    return true;
  }

 private:
  struct Part {
    std::uint32_t data[4];
  };

  /// The last eight bytes of a line: its lap, twice.
  [[nodiscard]] POLYPATH_DEVICE bool is_flag(const ll_packet& last, std::uint64_t turn) const {
    const std::uint32_t lap = generation_of(turn) + 1;
    return last.data[2] == lap && last.lap == lap;
  }
  [[nodiscard]] POLYPATH_DEVICE ll_packet* parts_of(std::uint64_t turn) const {
    return reinterpret_cast<ll_packet*>(this->begin_ + place_of(turn) * kLineBytes);
  }
};

}  // namespace polypath::device
