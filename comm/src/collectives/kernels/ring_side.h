// The rings of a channel, as the warp sees them that leads its block: lane l looks after one side
// of one ring, with one peer. C++17, pure functions.
//
// A channel has two rings for every ordered pair of ranks, one for each hop (rank_roles.h), and a
// rank has a side of each: where it pushes, or where it takes. A side is a kind and a peer: lane 8
// kind + peer.
#pragma once

#include <cstdint>

#include "collectives/kernels/rank_roles.h"

namespace polypath {

enum SideKind : std::uint32_t { kPushes0, kPushes1, kTakes0, kTakes1 };
static_assert(4 * kMaxRanks == 32, "a lane for every side");

struct RingSide {
  SideKind kind;
  std::uint32_t peer;
  bool uses_ring;       ///< in this call
  bool combines;        ///< takes to combine, or pushes what was combined
  bool keeps;           ///< copies the piece from this rank's `in` to its `out`
  std::uint32_t delay;  ///< tile t has its turn in step t + delay
  std::uint32_t piece;  ///< whose

  constexpr bool pushes() const { return kind < kTakes0; }
  constexpr std::uint32_t ring() const { return kind % 2; }
  /// Where the other side of the ring looks after it, at the peer: its kind.
  constexpr std::uint32_t other_kind() const { return pushes() ? kind + 2 : kind - 2; }
};

/// Whose piece a rank pushes to `peer`: that which goes there. Where all ranks get the same, its
/// place and length are those of this rank's own if pieces are even.
constexpr std::uint32_t pushed_piece(const Pieces&, std::uint32_t, std::uint32_t peer) {
  return peer;
}
constexpr std::uint32_t pushed_piece(const UnevenPieces& pieces, std::uint32_t rank,
                                     std::uint32_t peer) {
  return pieces.in_stride == 0 ? rank : peer;
}

/// The side that lane `lane` of rank `rank` looks after.
template <typename AnyPieces>
constexpr RingSide ring_side_of(const AnyPieces& pieces, const RankRoles& roles, std::uint32_t rank,
                                std::uint32_t lag, std::uint32_t lane) {
  RingSide side{};
  side.kind = static_cast<SideKind>(lane / kMaxRanks);
  side.peer = lane % kMaxRanks;
  const std::uint32_t bit = 1U << side.peer;
  if (side.pushes()) {
    const bool pushes = (roles.push & bit) != 0 && roles.ring == side.ring();
    const bool results = side.kind == kPushes1 && (roles.results & bit) != 0;
    side.uses_ring = pushes || results;
    side.combines = results;
    side.delay = results ? lag : 0;
    side.piece = results ? rank : pushed_piece(pieces, rank, side.peer);
  } else if (side.kind == kTakes0) {
    side.uses_ring = (roles.combine & bit) != 0;
    side.combines = side.uses_ring || (roles.owner && side.peer == rank);
    side.delay = lag;
    side.piece = rank;
  } else {
    side.uses_ring = (roles.take & bit) != 0;
    side.keeps = (roles.keep & bit) != 0;
    side.delay = roles.two_hops ? 2 * lag : lag;
    side.piece = side.peer;
  }
  return side;
}

/// Steps until the last tile of a share has left: tile t is pushed in step t.
constexpr std::uint32_t steps_of(const RankRoles& roles, std::uint32_t lag, std::uint32_t tiles) {
  return tiles + roles.hops() * lag;
}

}  // namespace polypath
