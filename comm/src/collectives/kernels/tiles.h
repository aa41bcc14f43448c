// How a channel goes through its share of a piece: tile by tile. C++17, pure functions.
//
// A tile that goes over a relay is on two links, one after the other. So a channel over a relay
// needs a step more than a straight one for each of its stages: the link to the receiver waits for
// the first tile, and the link from the sender has nothing to do during the last. In a step each
// link carries a tile of each stage. So that all links end together, such a channel has a share
// that is shorter by one tile a stage (simulated mesh, 64 MiB over two relays: allreduce 281 us,
// with shares of one length 274; all_gather 158 and 154).
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

/// For channel `channel` of `channels`, which go these ways, in a call of so many stages: tiles of up
/// to `most` bytes (kGranule or more), in place and in size multiples of kGranule. Counts granules in
/// 32 bits, which a GPU divides ten times as fast as 64: `longest` is less than 2^31 of them.
template <std::uint32_t kGranule>
constexpr Cut cut_of(std::uint64_t longest, std::uint32_t channels, std::uint32_t channel,
                     std::uint32_t most, const ChannelWays& ways, std::uint32_t stages) {
  const auto whole = static_cast<std::uint32_t>((longest + kGranule - 1) / kGranule);
  const std::uint32_t max_granules = most / kGranule;
  std::uint32_t share = 0;
  std::uint64_t first = 0;
  if (ways.relays == 0) {
    share = (whole + channels - 1) / channels;
    first = std::uint64_t{channel} * share;
  } else {
    // The share of a channel over a relay, and what a straight one has more, which is as much at
    // most.
    const std::uint32_t straight = ways.straight_before(channels);
    const std::uint32_t all = channels + straight;
    std::uint32_t more = (whole + all - 1) / all;
    share = more;
    if (more > stages * max_granules) {
      more = stages * max_granules;
      share = (whole - straight * more + channels - 1) / channels;
    }
    first = std::uint64_t{channel} * share + ways.straight_before(channel) * more;
    if (ways.relay_of(channel) == ChannelWays::kStraight) share += more;
  }
  const std::uint64_t begin = first * kGranule;
  if (begin >= longest) return {0, 0, 0, 0};
  const std::uint32_t tiles = (share + max_granules - 1) / max_granules;
  const std::uint32_t tile = (share + tiles - 1) / tiles;
  return {begin, begin + std::uint64_t{share} * kGranule, tile * kGranule, tiles};
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
