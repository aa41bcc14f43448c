// Which way each channel of a call goes: straight between two ranks, or over a GPU that is no rank
// (a relay). C++17, pure functions, the same for plans, hosts and devices.
//
// A link between two ranks carries what these exchange; a link between a rank and a relay what the
// rank exchanges with all others. With links that are all alike, n ranks and r relays, all links
// carry as much when of each n - 1 + r channels n - 1 go straight, and one over each relay. Shares of
// channels differ by a tile or two (kernels/tiles.h).
#pragma once

#include <cstdint>

namespace polypath {

/// Relays of a call by channels.
inline constexpr std::uint32_t kMaxRelays = 6;

struct ChannelWays {
  std::uint32_t ranks;
  std::uint32_t relays;

  static constexpr std::uint32_t kStraight = ~std::uint32_t{0};

  /// The number of channels after which ways repeat.
  constexpr std::uint32_t period() const { return ranks - 1 + relays; }
  /// The relay that this channel goes over, by index; kStraight: none.
  constexpr std::uint32_t relay_of(std::uint32_t channel) const {
    if (relays == 0) return kStraight;
    const std::uint32_t place = channel % period();
    return place < ranks - 1 ? kStraight : place - (ranks - 1);
  }
  /// How many of the channels before this one go straight.
  constexpr std::uint32_t straight_before(std::uint32_t channel) const {
    if (relays == 0) return channel;
    const std::uint32_t place = channel % period();
    return channel / period() * (ranks - 1) + (place < ranks - 1 ? place : ranks - 1);
  }
};

}  // namespace polypath
