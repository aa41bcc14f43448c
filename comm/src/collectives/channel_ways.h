// Which way each channel of a call goes: straight between two ranks, or over a GPU that is no rank
// (a relay), and how much of a message goes there. C++17, pure functions, the same for plans, hosts
// and devices.
//
// A link between two ranks carries what these exchange; a link between a rank and a relay what the
// rank exchanges with all others. With links that are all alike, n ranks and r relays, all links
// are equally busy when of each n - 1 + r channels n - 1 go straight, and one over each relay.
//
// A tile that goes over a relay is on two links, one after the other. So a channel over a relay
// needs a step more than a straight one for each hop of the call: the link to the receiver waits
// for the first tile, and the link from the sender has nothing to do during the last. In a step
// each link carries a tile of each hop. So that all links end together, such a channel has a share
// that is shorter by as many tiles as there are hops (simulated mesh, 64 MiB over two relays:
// allreduce, two hops, 274 us, and 281 with shares of one length; all_gather 154 and 158).
#pragma once

#include <cstdint>

namespace polypath {

/// Relays of a call by channels.
inline constexpr std::uint32_t kMaxRelays = 6;

/// Bytes of a granule: shares, tiles and slots are multiples of it.
inline constexpr std::uint32_t kChannelGranule = 128;
constexpr std::uint32_t channel_granules(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes + kChannelGranule - 1) / kChannelGranule);
}

/// What a channel has of a piece, in granules.
struct WayShares {
  std::uint32_t relayed;
  std::uint32_t straight;
};

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

  /// Shares of a piece of `whole` granules, fewer than 2^31, in `channels`, whose tiles have up to
  /// `tile` granules, in a call of `hops`, 1 or 2. A straight share is at most twice a relayed one.
  constexpr WayShares shares(std::uint32_t whole, std::uint32_t channels, std::uint32_t tile,
                             std::uint32_t hops) const {
    if (relays == 0) {
      const std::uint32_t share = (whole + channels - 1) / channels;
      return {share, share};
    }
    const std::uint32_t straight = straight_before(channels);
    const std::uint32_t all = channels + straight;
    const std::uint32_t half = (whole + all - 1) / all;
    const std::uint32_t more = hops * tile;
    if (half <= more) return {half, 2 * half};
    const std::uint32_t share = (whole - straight * more + channels - 1) / channels;
    return {share, share + more};
  }
  /// The part of a message that goes over each relay.
  constexpr double relay_part(const WayShares& share, std::uint32_t channels) const {
    if (relays == 0) return 0;
    const std::uint32_t straight = straight_before(channels);
    const double relayed = static_cast<double>(share.relayed) * (channels - straight);
    return relayed / relays / (relayed + static_cast<double>(share.straight) * straight);
  }
};

}  // namespace polypath
