// Collectives by channels: tiles that flow through rings of slots, for every size.
//
// Block b of every rank is channel b. For every ordered pair of ranks (s, r) a channel has two
// rings (roles.h says what goes on which) of `slots` slots in r's scratch, and for each ring two
//   flags: filled   in r's scratch: tiles that s has put into the ring since the scratch was made
//   credit   in s's scratch: tiles that r has taken out of it since then
// Only s writes slots and `filled`, only r reads slots and writes `credit`; both keep their own
// count of the ring's tiles in their own scratch, from call to call. So a call needs no barrier at
// its start or end, another call may use more or fewer blocks, and a captured graph replays:
// nothing that the host gives says which call it is.
//
// The buffers are cut into pieces (roles.h), each piece into one share a block, a share into tiles.
// A block goes through its tiles in steps. In step i it
//   waits    until the peers have filled and taken what this step needs (32 lanes of the first
//            warp, one a kind of flag and peer: acquire), then a barrier of the block;
//   works    pushes tile i of `in` into the peers' slots; combines tile i - lag from its slots and
//            its own part, stores the result in `out` and pushes it to the peers; copies tile
//            i - 2 lag from its slots to `out` (i - lag where nothing was combined before);
//   tells    a barrier of the block; then each lane: a fence of system scope, and its flag at its
//            peer: what was filled, what was taken.
// A tile that is empty (the piece is shorter) is neither sent nor counted, by sender and receiver
// alike, for both compute its length from the same numbers.
//
// Order of memory. A lane's fence follows the block's barrier, so whoever acquires the flag sees
// all that the block stored or read before: the slot is complete, or no longer read. The receiver's
// barrier after the acquire passes that on to all its threads; slots are read past the first-level
// cache.
//
// No deadlock, provided that all blocks of a call run at once. Give what a rank does in its step i
// the time i. Combining at time i needs tiles told of at time i - lag; copying, tiles told of
// at i - lag; filling a slot, tile by tile `slots` earlier, the credit told of at time
// i - slots + lag. All are before i, as 1 <= lag < slots: waiting goes back in time only, so
// whoever has the earliest step can go on.
//
// In place. A tile of `in` is read in its step, `out` is written at the same place in a later step
// of the same block, or in the same step by the same thread (reduce_tile).
//
// Results do not depend on the number of blocks, on tiles or on time: every element is combined
// from the ranks' elements in rank order, by one thread.
#pragma once

#include <cstdint>
#include <type_traits>

#include "collectives/kernels/collective_args.h"
#include "collectives/kernels/planted_faults.h"
#include "collectives/kernels/reductions.cuh"
#include "collectives/kernels/roles.h"
#include "collectives/kernels/unroll.h"
#include "comm/kernels/giving_up.cuh"
#include "simt/platform.cuh"

namespace polypath::channels {

/// A block's share of the longest piece, cut into tiles.
struct Cut {
  std::uint64_t begin;  ///< of the share, in every piece
  std::uint64_t end;
  std::uint32_t tile;  ///< bytes
  std::uint32_t tiles;
};

SIMT_DEVICE Cut cut_of(const CollectiveArgs& args, std::uint64_t longest) {
  const auto up = [](std::uint64_t bytes) {
    return (bytes + kScratchGranule - 1) / kScratchGranule * kScratchGranule;
  };
  const std::uint64_t share = up((longest + simt::grid_size() - 1) / simt::grid_size());
  const std::uint64_t begin = simt::block_index() * share;
  const std::uint64_t tiles = (share + args.tile_bytes - 1) / args.tile_bytes;
  if (tiles == 0 || begin >= longest) return {0, 0, 0, 0};
  const std::uint64_t tile = up((share + tiles - 1) / tiles);
  return {begin, begin + share, static_cast<std::uint32_t>(tile),
          static_cast<std::uint32_t>(tiles)};
}

/// Of tile `index` in a piece of `length` bytes.
struct Tile {
  std::uint64_t begin;  ///< in the piece
  std::uint32_t bytes;
};

SIMT_DEVICE Tile tile_of(const Cut& cut, std::uint32_t index, std::uint64_t length) {
  const std::uint64_t begin = cut.begin + std::uint64_t{index} * cut.tile;
  std::uint64_t end = begin + cut.tile < cut.end ? begin + cut.tile : cut.end;
  if (end > length) end = length;
  return {begin, begin < end ? static_cast<std::uint32_t>(end - begin) : 0};
}

/// What a block works on in one step; in shared memory.
struct Work {
  struct Move {
    const unsigned char* from;
    unsigned char* to;
    std::uint32_t bytes;
  };
  Move moves[2 * kMostRanks];
  std::uint32_t move_count;
  const unsigned char* sources[kMostRanks];  ///< in rank order
  unsigned char* targets[kMostRanks];
  std::uint32_t source_count;
  std::uint32_t target_count;
  std::uint32_t combined_bytes;
};

SIMT_DEVICE std::uint32_t bits_below(std::uint32_t set, std::uint32_t bit) {
  std::uint32_t count = 0;
  POLYPATH_UNROLL
  for (std::uint32_t b = 0; b < kMostRanks; ++b) count += b < bit ? (set >> b) & 1U : 0;
  return count;
}

/// One lane of the first warp: one side of one ring of this channel, with one peer.
class Lane {
 public:
  SIMT_DEVICE Lane(const CollectiveArgs& args, const Part& part)
      : args_(args),
        part_(part),
        layout_{args.shape},
        kind_(simt::lane_index() / kMostRanks),
        peer_(simt::lane_index() % kMostRanks) {
    const Roles& roles = part.roles;
    const std::uint32_t bit = 1U << peer_;
    const std::uint32_t lag = args.lag;
    // What this lane's ring carries, by kind: the step in which, and whose piece.
    if (kind_ == kPush0 || kind_ == kPush1) {
      const bool pushes = (roles.push & bit) != 0 && roles.ring == ring();
      const bool results = kind_ == kPush1 && (roles.results & bit) != 0;
      uses_ring_ = pushes || results;
      combines_ = results;
      delay_ = results ? lag : 0;
      piece_ = results ? args.rank : peer_;
    } else if (kind_ == kTake0) {
      uses_ring_ = (roles.combine & bit) != 0;
      combines_ = uses_ring_ || (roles.owner && peer_ == args.rank);
      delay_ = lag;
      piece_ = args.rank;
    } else {
      uses_ring_ = (roles.take & bit) != 0;
      keeps_ = (roles.keep & bit) != 0;
      delay_ = roles.two_hops ? 2 * lag : lag;
      piece_ = peer_;
    }
    count_address_ = words(args.rank, layout_.counts(channel())) + simt::lane_index();
    if (uses_ring_ && !planted(Fault::counts_not_kept)) count_ = simt::load(count_address_);
  }

  /// The last step, and one.
  SIMT_DEVICE static std::uint32_t steps(const CollectiveArgs& args, const Roles& roles,
                                         const Cut& cut) {
    return cut.tiles + (roles.two_hops ? 2U : 1U) * args.lag;
  }

  /// Waits for what it needs in `step`, and enters its part of the work. False: gave up.
  SIMT_DEVICE bool prepare(const Cut& cut, std::uint32_t step, Work& work) {
    tile_ = {};
    const std::uint32_t index = step - delay_;  // huge before its time
    if (step >= delay_ && index < cut.tiles) tile_ = tile_of(cut, index, length());
    active_ = tile_.bytes != 0 && uses_ring_;
    bool came = true;
    if (active_) came = wait();
    enter(work);
    return came;
  }

  /// Tells the peer what it did. After the block's barrier; `early`: before the work, as a planted
  /// fault has it.
  SIMT_DEVICE void tell(bool early = false) {
    const bool told_early =
        planted(pushes() ? Fault::flag_before_data : Fault::credit_before_taking);
    if (!active_ || early != told_early) return;
    ++count_;
    const std::uint32_t other_kind = kind_ < kTake0 ? kind_ + 2 : kind_ - 2;
    std::uint64_t* const flag =
        words(peer_, layout_.flags(channel())) + other_kind * kMostRanks + args_.rank;
    if (!planted(Fault::flag_without_fence)) simt::fence_sys();
    simt::store_relaxed(flag, count_);
  }

  SIMT_DEVICE void keep_count() {
    if (uses_ring_) simt::store(count_address_, count_);
  }

 private:
  static constexpr std::uint32_t kPush0 = 0, kPush1 = 1, kTake0 = 2;

  SIMT_DEVICE bool pushes() const { return kind_ < kTake0; }
  SIMT_DEVICE std::uint32_t ring() const { return kind_ % 2; }
  SIMT_DEVICE static std::uint32_t channel() { return simt::block_index(); }
  SIMT_DEVICE std::uint64_t* words(std::uint32_t rank, std::uint64_t offset) const {
    return reinterpret_cast<std::uint64_t*>(args_.scratch[rank] + offset);
  }
  SIMT_DEVICE std::uint64_t length() const { return part_.pieces.length(piece_); }

  SIMT_DEVICE bool wait() {
    std::uint32_t slots = args_.shape.slots;
    if (planted(Fault::credit_too_large)) ++slots;
    const std::uint64_t needed = count_ + 1 - (pushes() && count_ >= slots ? slots : 0);
    if (pushes() && count_ < slots) return true;  // no slot was used before
    if (planted(pushes() ? Fault::no_wait_for_credit : Fault::no_wait_for_data)) return true;
    const std::uint64_t* const flag =
        words(args_.rank, layout_.flags(channel())) + simt::lane_index();
    std::uint64_t seen = 0;
    const auto ready = [&] {
      seen = simt::load_acquire(flag);
      return seen >= needed;
    };
    return wait_with(args_.patience, ready, [&] { return Awaited{peer_, needed, seen}; });
  }

  SIMT_DEVICE unsigned char* slot() const {
    const std::uint32_t receiver = pushes() ? peer_ : args_.rank;
    const std::uint32_t sender = pushes() ? args_.rank : peer_;
    return args_.scratch[receiver] +
           layout_.slot(ring(), sender, channel(),
                        static_cast<std::uint32_t>(count_ % args_.shape.slots));
  }
  SIMT_DEVICE const unsigned char* in() const {
    return static_cast<const unsigned char*>(args_.in) + part_.pieces.in(piece_) + tile_.begin;
  }
  SIMT_DEVICE unsigned char* out() const {
    return static_cast<unsigned char*>(args_.out) + part_.pieces.out(piece_) + tile_.begin;
  }

  /// All lanes of the warp. Entries of a list stand in the order of the lanes.
  SIMT_DEVICE void enter(Work& work) const {
    const Roles& roles = part_.roles;
    const bool keeps = keeps_ && tile_.bytes != 0 && in() != out();
    const bool moves = (active_ && !combines_) || keeps;
    const std::uint32_t movers = simt::warp_ballot(moves);
    if (moves) {
      const std::uint32_t place = count_bits(movers & ((1U << simt::lane_index()) - 1));
      work.moves[place] = {pushes() || keeps ? in() : slot(), pushes() ? slot() : out(),
                           tile_.bytes};
    }
    if (kind_ == kPush1 && combines_ && active_)
      work.targets[bits_below(roles.results, peer_) + (roles.owner_keeps ? 1 : 0)] = slot();
    if (kind_ == kTake0 && combines_ && tile_.bytes != 0) {
      const std::uint32_t own = roles.own_part ? 1U << args_.rank : 0;
      const std::uint32_t sources = roles.combine | own;
      if (uses_ring_) {
        std::uint32_t place = bits_below(sources, peer_);
        if (planted(Fault::own_part_first)) place = bits_below(roles.combine, peer_) + 1;
        work.sources[place] = slot();
      }
      if (peer_ == args_.rank) {
        if (roles.own_part)
          work.sources[planted(Fault::own_part_first) ? 0 : bits_below(sources, peer_)] = in();
        if (roles.owner_keeps)
          work.targets[0] =
              static_cast<unsigned char*>(args_.out) + part_.pieces.out(args_.rank) + tile_.begin;
        work.source_count = bits_below(sources, kMostRanks);
        work.target_count = bits_below(roles.results, kMostRanks) + (roles.owner_keeps ? 1 : 0);
      }
    }
    if (kind_ == kTake0 && peer_ == args_.rank) work.combined_bytes = combines_ ? tile_.bytes : 0;
    if (simt::lane_index() == 0) work.move_count = count_bits(movers);
  }

  SIMT_DEVICE static std::uint32_t count_bits(std::uint32_t set) {
    std::uint32_t count = 0;
    for (; set != 0; set &= set - 1) ++count;
    return count;
  }

  const CollectiveArgs& args_;
  const Part& part_;
  ScratchLayout layout_;
  std::uint32_t kind_;
  std::uint32_t peer_;
  bool uses_ring_ = false;
  bool combines_ = false;
  bool keeps_ = false;
  std::uint32_t delay_ = 0;
  std::uint32_t piece_ = 0;
  std::uint64_t* count_address_;
  std::uint64_t count_ = 0;  ///< tiles of the ring that this side is done with
  Tile tile_{};
  bool active_ = false;  ///< fills or takes a slot in this step
};

/// All moves of a step, shared among the warps: each copies chunks of one move after another.
SIMT_DEVICE void run_moves(const Work& work) {
  constexpr std::uint32_t kLeast = 512;  // bytes: a word of 16 a lane
  constexpr std::uint32_t kMost = 4096;  // as many words in flight as copy_tile takes at once
  const std::uint32_t count = work.move_count;
  if (count == 0) return;
  const std::uint32_t warps = simt::block_size() / simt::kWarp;
  std::uint32_t chunk = kLeast;
  while (chunk < kMost && chunk * warps < work.moves[0].bytes * count) chunk *= 2;
  const simt::Group warp(simt::warp_index(), 1, 0);
  std::uint32_t move = simt::warp_index() % count;
  std::uint32_t begin = simt::warp_index() / count * chunk;
  for (std::uint32_t unit = simt::warp_index();;) {
    // The longest move decides how many rounds there are; shorter ones have nothing in the last.
    const Work::Move& now = work.moves[move];
    if (begin < now.bytes) {
      const std::uint32_t rest = now.bytes - begin;
      simt::copy_tile(warp, simt::Places<unsigned char, 1>{{now.to + begin}, 1}, now.from + begin,
                      rest < chunk ? rest : chunk);
    }
    unit += warps;
    move = unit % count;
    begin = unit / count * chunk;
    bool more = false;
    for (std::uint32_t m = 0; m < count; ++m) more |= begin < work.moves[m].bytes;
    if (!more) break;
  }
}

/// The first `count` of addresses in shared memory, at most `kMost`: fewer need fewer registers.
template <int kMost, typename T, typename From>
SIMT_DEVICE simt::Places<T, kMost> places_of(From* const (&addresses)[kMostRanks],
                                             std::uint32_t count) {
  simt::Places<T, kMost> places;
  places.count = static_cast<int>(count);
  POLYPATH_UNROLL
  for (int p = 0; p < kMost; ++p)
    if (p < places.count) places.at[p] = reinterpret_cast<T*>(addresses[p]);
  return places;
}

template <int kMost, typename Element>
SIMT_DEVICE void combine(const CollectiveArgs& args, const Work& work) {
  const simt::Group block = simt::Group::block();
  if constexpr (std::is_same_v<Element, Bytes>) {
    const auto to = places_of<kMost, unsigned char>(work.targets, work.target_count);
    simt::copy_tile(block, to, work.sources[0], work.combined_bytes);
  } else {
    const auto to = places_of<kMost, Element>(work.targets, work.target_count);
    const auto from = places_of<kMost, const Element>(work.sources, work.source_count);
    const std::size_t count = work.combined_bytes / sizeof(Element);
    if (args.reduction == Operator::sum || args.reduction == Operator::avg)
      simt::reduce_tile(block, Reduction<Element, true>(args), to, from, count);
    else
      simt::reduce_tile(block, Reduction<Element, false>(args), to, from, count);
  }
}

/// `Element`: of reduce_tile, or Bytes for the operations that combine nothing.
template <typename Element, int kMost>
SIMT_DEVICE void run_among(const CollectiveArgs& args, Work& work) {
  const Part part = part_of(args);
  const Cut cut = cut_of(args, part.pieces.longest);
  if (cut.tiles == 0) return;
  const bool leads = simt::warp_index() == 0;
  Lane lane(args, part);
  const std::uint32_t steps = Lane::steps(args, part.roles, cut);
  for (std::uint32_t step = 0; step < steps; ++step) {
    bool gives_up = false;
    if (leads) gives_up = !lane.prepare(cut, step, work);
    if (leads) lane.tell(true);
    if (simt::barrier_any(0, simt::block_size(), gives_up)) return;
    run_moves(work);
    if (work.combined_bytes != 0) combine<kMost, Element>(args, work);
    if (!planted(Fault::flag_without_barrier)) simt::block_sync();
    if (leads) lane.tell();
    if (planted(Fault::flag_without_barrier)) simt::block_sync();
  }
  if (leads) lane.keep_count();
}

template <typename Element>
SIMT_DEVICE void run(const CollectiveArgs& args) {
  SIMT_SHARED(Work, work);
  if (args.shape.ranks <= kMostRanks / 2)
    run_among<Element, static_cast<int>(kMostRanks / 2)>(args, work);
  else
    run_among<Element, static_cast<int>(kMostRanks)>(args, work);
}

}  // namespace polypath::channels
