// What ranks send to each other in a call: the same for cells and channels, hosts and devices.
// C++17, pure functions.
//
// A call moves *pieces* of the buffers in up to two hops. In the first, ring 0, ranks push pieces
// of `in` to the piece's owner, which combines them with its own part, in rank order. In the
// second, ring 1, the owner pushes the result (or, where nothing is combined, a rank pushes a piece
// of its `in`) to the ranks whose `out` it belongs to, and they copy it there.
//
//   operation       one stage                          two stages
//   allreduce       each rank owns the whole           rank p owns the p-th slice
//   reduce_scatter  rank p owns its part               as one stage
//   all_gather, all_to_all   ring 1 alone              as one stage
//   broadcast       the root pushes the whole, ring 1  slices by ranks other than the root, so that
//                                                      no port carries more than the buffer once
//   reduce          the root owns the whole            slices as there; results go to the root
#pragma once

#include <cstdint>

#include "collectives/kernels/collective_args.h"

namespace polypath {

/// Slices begin at multiples of it: whole rows of cells, whole words of every type.
inline constexpr std::uint64_t kSliceGranule = 768;

/// Where pieces lie; all in bytes.
struct Pieces {
  std::uint64_t longest;    ///< piece
  std::uint64_t total;      ///< of all pieces that are slices of one buffer; else `longest`
  std::uint64_t in_stride;  ///< from one piece to the next; 0: every piece is at the start
  std::uint64_t out_stride;
  bool sliced;         ///< pieces are slices of one buffer
  std::uint32_t skip;  ///< the rank that owns no slice; kMaxRanks: none

  constexpr std::uint64_t index(std::uint32_t rank) const { return rank > skip ? rank - 1 : rank; }
  constexpr std::uint64_t length(std::uint32_t rank) const {
    if (!sliced) return longest;
    const std::uint64_t begin = index(rank) * longest;
    if (begin >= total) return 0;
    return total - begin < longest ? total - begin : longest;
  }
  /// The length of what a rank pushes to all others alike.
  constexpr std::uint64_t pushed_length(std::uint32_t) const { return longest; }
  constexpr std::uint64_t in(std::uint32_t rank) const { return index(rank) * in_stride; }
  constexpr std::uint64_t out(std::uint32_t rank) const { return index(rank) * out_stride; }
};

/// Pieces that may have different lengths.
struct UnevenPieces : Pieces {
  const std::uint64_t* begins;  ///< UnevenArgs::begins; null: even ones

  constexpr std::uint64_t length(std::uint32_t rank) const {
    return begins != nullptr ? begins[rank + 1] - begins[rank] : Pieces::length(rank);
  }
  constexpr std::uint64_t pushed_length(std::uint32_t rank) const {
    return begins != nullptr ? length(rank) : longest;
  }
  constexpr std::uint64_t in(std::uint32_t rank) const {
    return begins != nullptr && in_stride != 0 ? begins[rank] : Pieces::in(rank);
  }
  constexpr std::uint64_t out(std::uint32_t rank) const {
    return begins != nullptr && out_stride != 0 ? begins[rank] : Pieces::out(rank);
  }
};

/// What one rank does. Sets of ranks: bit p for rank p; only others than the rank itself, but for
/// `keep`.
struct RankRoles {
  std::uint32_t push;     ///< ranks to which it pushes pieces of `in`, or its own piece
  std::uint32_t ring;     ///< on which ring
  bool owner;             ///< combines its piece, and stores it in
  bool owner_keeps;       ///< its own `out`
  bool own_part;          ///< ... together with its own part
  std::uint32_t combine;  ///< whose pieces it combines: the source sets of ring 0
  std::uint32_t results;  ///< ranks to which it pushes what it combined, on ring 1
  std::uint32_t take;     ///< whose pieces of ring 1 it copies to `out`
  std::uint32_t keep;     ///< pieces that it copies from its `in` to its `out`
  bool two_hops;          ///< what is taken was combined before, by its sender; alike on all ranks

  [[nodiscard]] constexpr std::uint32_t hops() const { return two_hops ? 2 : 1; }
};

/// Whether others may store their results into `out` while the call runs: of one hop all_to_all
/// reads there what they would overwrite.
constexpr bool may_go_straight(const CollectiveArgs& args) {
  return args.op != CollectiveOp::all_to_all || args.in != args.out;
}

/// The first tile of ring 1 that may go straight into `out`. Those before it go to slots while the
/// announcement is under way; of two hops the first one takes as long. Past all tiles: none may.
constexpr std::uint32_t first_direct_tile(const CollectiveArgs& args, const RankRoles& roles) {
  if (args.has_windows == 0) return ~std::uint32_t{0};
  return roles.two_hops ? 0 : args.lag;
}

struct Part {
  Pieces pieces;
  RankRoles roles;
};
struct UnevenPart {
  UnevenPieces pieces;
  RankRoles roles;
};

/// The part of rank `args.rank` in the call.
constexpr Part part_of(const CollectiveArgs& args) {
  const std::uint32_t size = args.shape.ranks;
  const std::uint32_t rank = args.rank;
  const std::uint32_t root = args.root;
  const std::uint32_t all = (1U << size) - 1;
  const std::uint32_t me = 1U << rank;
  const std::uint32_t others = all & ~me;
  const bool is_root = rank == root;
  const std::uint64_t bytes = args.count * size_of(args.type);
  const bool rooted = args.op == CollectiveOp::broadcast || args.op == CollectiveOp::reduce;
  const bool sliced = args.stages == 2 && (rooted ? size > 2 : args.op == CollectiveOp::allreduce);

  Part part{};
  Pieces& pieces = part.pieces;
  RankRoles& roles = part.roles;
  pieces.skip = sliced && rooted ? root : kMaxRanks;
  pieces.sliced = sliced;
  pieces.longest = bytes;
  pieces.total = bytes;
  if (sliced) {
    const std::uint64_t owners = rooted ? size - 1 : size;
    const std::uint64_t even = (bytes + owners - 1) / owners;
    pieces.longest = (even + kSliceGranule - 1) / kSliceGranule * kSliceGranule;
    pieces.in_stride = pieces.longest;
    pieces.out_stride = pieces.longest;
  }
  const std::uint32_t owners = sliced && rooted ? all & ~(1U << root) : all;

  switch (args.op) {
    case CollectiveOp::allreduce:
      roles.push = others;
      roles.owner = roles.owner_keeps = roles.own_part = true;
      roles.combine = others;
      if (sliced) roles.results = roles.take = others;
      roles.two_hops = sliced;
      break;
    case CollectiveOp::reduce_scatter:
      pieces.in_stride = bytes;
      roles.push = others;
      roles.owner = roles.owner_keeps = roles.own_part = true;
      roles.combine = others;
      break;
    case CollectiveOp::all_gather:
      pieces.out_stride = bytes;
      roles.push = roles.take = others;
      roles.ring = 1;
      roles.keep = me;
      break;
    case CollectiveOp::all_to_all:
      pieces.in_stride = pieces.out_stride = bytes;
      roles.push = roles.take = others;
      roles.ring = 1;
      roles.keep = me;
      break;
    case CollectiveOp::broadcast:
      if (!sliced) {
        roles.ring = 1;
        roles.push = is_root ? others : 0;
        roles.take = is_root ? 0 : 1U << root;
        roles.keep = is_root ? me : 0;
      } else if (is_root) {
        roles.push = owners;
        roles.keep = owners;
      } else {
        roles.owner = roles.owner_keeps = true;
        roles.combine = 1U << root;
        roles.results = roles.take = owners & ~me;
      }
      roles.two_hops = sliced;
      break;
    case CollectiveOp::reduce:
      if (!sliced) {
        roles.push = is_root ? 0 : 1U << root;
        roles.owner = roles.owner_keeps = roles.own_part = is_root;
        roles.combine = is_root ? others : 0;
      } else {
        roles.push = owners & ~me;
        roles.owner = roles.own_part = !is_root;
        roles.combine = is_root ? 0 : others;
        roles.results = is_root ? 0 : 1U << root;
        roles.take = is_root ? owners : 0;
      }
      roles.two_hops = sliced;
      break;
  }
  return part;
}
constexpr UnevenPart part_of(const UnevenArgs& args) {
  const Part even = part_of(static_cast<const CollectiveArgs&>(args));
  return {{even.pieces, args.is_uneven ? args.begins : nullptr}, even.roles};
}

/// The part in a call with these arguments.
template <typename Args>
using PartOf = decltype(part_of(static_cast<const Args*>(nullptr)[0]));

}  // namespace polypath
