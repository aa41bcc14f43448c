// How a channel goes through its share of a piece: tile by tile. C++17, pure functions.
#pragma once

#include <cstdint>

#include "collectives/channel_ways.h"

namespace polypath {

/// A channel's share of the longest piece, cut into tiles.
struct Cut {
  std::uint64_t begin;  ///< of the share, in every piece
  std::uint64_t end;
  std::uint32_t tile;  ///< bytes
  std::uint32_t tiles;
};

/// For channel `channel` of `channels`, which go these ways, in a call of `hops`: tiles of up to
/// `most` bytes (a granule or more), in place and in size multiples of a granule. Counts granules
/// in 32 bits, which a GPU divides ten times as fast as 64: `longest` is less than 2^31 of them.
constexpr Cut cut_of(std::uint64_t longest, std::uint32_t channels, std::uint32_t channel,
                     std::uint32_t most, const ChannelWays& ways, std::uint32_t hops) {
  const std::uint32_t max_granules = most / kChannelGranule;
  const WayShares shares = ways.shares(channel_granules(longest), channels, max_granules, hops);
  const std::uint64_t begin = (std::uint64_t{channel} * shares.relayed +
                               ways.straight_before(channel) * (shares.straight - shares.relayed)) *
                              kChannelGranule;
  if (begin >= longest) return {0, 0, 0, 0};
  const std::uint32_t share =
      ways.relay_of(channel) == ChannelWays::kStraight ? shares.straight : shares.relayed;
  const std::uint32_t tiles = (share + max_granules - 1) / max_granules;
  const std::uint32_t tile = (share + tiles - 1) / tiles;
  return {begin, begin + std::uint64_t{share} * kChannelGranule, tile * kChannelGranule, tiles};
}

/// Tile `index` in a piece of `length` bytes.
struct Tile {
  std::uint64_t begin;  ///< in the piece
  std::uint32_t bytes;  ///< 0: the piece is shorter, or there is no such tile
};

constexpr Tile tile_of(const Cut& cut, std::uint32_t index, std::uint64_t length) {
  if (index >= cut.tiles) return {0, 0};
  const std::uint64_t begin = cut.begin + std::uint64_t{index} * cut.tile;
  std::uint64_t end = begin + cut.tile < cut.end ? begin + cut.tile : cut.end;
  if (end > length) end = length;
  return {begin, begin < end ? static_cast<std::uint32_t>(end - begin) : 0};
}

}  // namespace polypath
