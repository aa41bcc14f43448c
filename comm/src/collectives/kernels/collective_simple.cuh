// Collectives by channels: tiles that flow through rings of slots, for every size.
//
// A call has a number of channels, the same on all ranks. Each rank has a number of blocks of its
// own, P: block b goes through channels b, b + P, b + 2 P ..., each to its end before the next.
// With as many blocks as channels, block b is channel b.
//
// For every ordered pair of ranks (s, r) a channel has two
// rings (rank_roles.h says what goes on which) of `slots` slots in r's scratch, and for each ring
// two
//   flags: filled   in r's scratch: tiles that s has put into the ring since the scratch was made
//   credit   in s's scratch: tiles that r has taken out of it since then
// Only s writes slots and `filled`, only r reads slots and writes `credit`; both keep their own
// count of the ring's tiles in their own scratch, from call to call. So tiles need no barrier at
// the start or end of a call, another call may use more or fewer blocks, and a captured graph
// replays: nothing that the host gives says which call it is. The ranks compare what they call
// while the first tiles are under way (call_meeting.cuh).
//
// The buffers are cut into pieces (rank_roles.h), each piece into one share a channel, a share
// into tiles. A block goes through the tiles of a channel in steps, each between two barriers. In
// step i
//   the first warp leads   It waits until the peers have filled and taken what step i + 1 needs
//            (acquire), and writes down the work of that step.
//   the second one tells   of step i - 1: a fence of system scope, and flags at the peers: what was
//            filled, what was taken.
//   all others work        They push tile i of `in` into the peers' slots; combine tile i - lag
//            from its slots and the block's own part, store the result in `out` and push it to the
//            peers; copy tile i - 2 lag from its slots to `out` (i - lag where nothing was combined
//            before).
// Each lane of the first two warps has one kind of flag of one peer (ring_side.h). A fence next to
// stores of others takes about as long as a small tile, and so does a wait: one warp for both would
// make such steps twice as long.
// A tile that is empty (the piece is shorter) is neither sent nor counted, by sender and receiver
// alike, for both compute its length from the same numbers.
//
// Order of memory. A lane's fence follows the barrier before its signal, so a thread that acquires
// the flag sees all that the block stored or read before: the slot is complete, or no longer read.
// The receiver's barrier after the acquire passes that on to all its threads; slots are read past
// the first-level cache.
//
// No deadlock, provided that all blocks of a call run at once, lag >= 2 and slots >= lag + 2.
// 1. Within a channel. Give preparing step i the time 2i; then telling of step i has the time
//    2i + 3, for it comes after preparing step i + 1, and before preparing step i + 3. Preparing
//    step i needs, for tiles to combine or to copy, what was told of step i - lag; to fill a slot,
//    tile by tile `slots` earlier, what was told of step i - slots + lag. Both were told before 2i:
//    waiting goes back in time only, so the rank in the earliest step can go on, once every rank is
//    in this channel or past it.
// 2. Between channels. A channel waits for the same channel of other ranks alone: its rings are its
//    own. Let c be the lowest channel that some rank has not ended. On each rank the block that has
//    c takes its channels in ascending order, and all below c have ended on all ranks. So each rank
//    is in c or past it, and by 1 channel c ends. This holds for any numbers of blocks, since the
//    order of channels is the same on all ranks. In orders that differ, two ranks could each wait
//    in a channel that the other one comes to later.
//
// Results straight into `out`. Tiles of ring 1 need no slot where their sender addresses the
// receiver's `out` (result_windows.cuh). The receiver says so for each channel when it prepares
// step 0, before it waits for anything: time 0 above. The sender waits for that before its first
// direct tile: tile 0 of two hops, in step `lag`, and tile `lag` of one hop, since tiles before it
// go to slots meanwhile. Direct tiles have flags as others: the receiver ends no call before it has
// seen those of all its tiles. But they take no slot, wait for no credit, and are not moved.
//
// Over relays. The slots of a channel may lie in memory of a GPU that is no rank (relay_layout.h).
// All above holds for them: the place of a slot changes neither its writer nor its reader, nor its
// flags. Fences are of system scope, so a receiver that acquires a flag in its own memory sees
// the tile in the relay's. No result goes straight there: it would take the ranks' own link.
//
// In place. A tile of `in` is read in its step, `out` is written at the same place in a later step
// of the same channel, or in the same step by the same thread (reduce_tile). Another rank stores a
// tile of two hops straight into `out` only after it has had the same tile of this rank's `in`.
// With one hop, all_to_all alone reads there what others overwrite: in place it goes by slots.
//
// Results do not depend on the number of channels or blocks, on tiles or on time: every element is
// combined from the ranks' elements in rank order, or as a tree over the ranks, by one thread.
#pragma once

#include <cstdint>
#include <type_traits>

#include "collectives/kernels/call_meeting.cuh"
#include "collectives/kernels/collective_args.h"
#include "collectives/kernels/mutants.h"
#include "collectives/kernels/rank_roles.h"
#include "collectives/kernels/reductions.cuh"
#include "collectives/kernels/relay_layout.h"
#include "collectives/kernels/result_windows.cuh"
#include "collectives/kernels/ring_side.h"
#include "collectives/kernels/tiles.h"
#include "polypath/device/wait.cuh"
#include "simt/platform.cuh"

namespace polypath::channels {

/// What a block does in one step; in shared memory.
struct Work {
  struct Move {
    const unsigned char* from;
    unsigned char* to;
    std::uint32_t bytes;
  };
  Move moves[2 * kMaxRanks];
  std::uint32_t move_count;
  bool is_end;                              ///< no step comes, and none is here
  const unsigned char* sources[kMaxRanks];  ///< in rank order
  unsigned char* targets[kMaxRanks];
  std::uint32_t source_count;
  std::uint32_t target_count;
  std::uint32_t combined_bytes;
  std::uint32_t tellers;   ///< lanes that fill or take a slot, and tell their peers
  std::uint32_t unfenced;  ///< ... of them without a fence, as a planted fault has it
};

SIMT_DEVICE std::uint32_t bits_below(std::uint32_t set, std::uint32_t bit) {
  std::uint32_t count = 0;
  POLYPATH_UNROLL
  for (std::uint32_t b = 0; b < kMaxRanks; ++b) count += b < bit ? (set >> b) & 1U : 0;
  return count;
}

SIMT_DEVICE std::uint64_t* count_address(const CollectiveArgs& args, std::uint32_t channel) {
  return reinterpret_cast<std::uint64_t*>(args.counts + ScratchLayout{args.shape}.counts(channel)) +
         simt::lane_index();
}

/// One lane of the first warp: what one side of one ring of a channel needs, with one peer.
template <typename Args>
class RingEnd {
 public:
  SIMT_DEVICE RingEnd(const Args& args, const PartOf<Args>& part, std::uint32_t channel)
      : args_(args),
        part_(part),
        channel_(channel),
        layout_{args.shape},
        side_(ring_side_of(part.pieces, part.roles, args.rank, args.lag, simt::lane_index())),
        relay_(ways_of(args).relay_of(channel)) {
    if (has_mutant(Fault::peer_part_pushed) && side_.kind == kPushes1) side_.piece = side_.peer;
    if (side_.uses_ring && !has_mutant(Fault::counts_not_kept))
      first_ = simt::load(count_address(args, channel));
    prepared_ = first_;
  }

  /// Waits for what it needs in `step`, and enters its part of the work; of the step after the last
  /// there is none. False: timed out.
  SIMT_DEVICE bool prepare(const Cut& cut, std::uint32_t step, Work& work, bool is_end) {
    tile_ = {};
    is_direct_ = false;
    bool arrived = true;
    if (step == 0 && side_.kind == kTakes1 && side_.uses_ring) announce(cut);
    if (step >= side_.delay) {
      const std::uint32_t index = step - side_.delay;
      tile_ = tile_of(cut, index, part_.pieces.length(side_.piece));
      if (tile_.bytes != 0 && side_.uses_ring && side_.ring() == 1) arrived = find_place(index);
    }
    uses_slot_ = tile_.bytes != 0 && side_.uses_ring;
    if (uses_slot_ && arrived) arrived = wait();
    enter(work);
    if (simt::lane_index() == 0) work.is_end = is_end;
    if (uses_slot_) ++prepared_;
    return arrived;
  }

  /// After a wait of this rank timed out: withdraws what it announced. A sender that has not read
  /// it stores nothing into `out` any more.
  SIMT_DEVICE void give_up() const {
    if (side_.kind == kTakes1 && window_ != nullptr && !has_mutant(Fault::window_not_withdrawn))
      windows::announce(args_, window_of(side_.peer, args_.rank), first_ + 1, nullptr);
  }

 private:
  SIMT_DEVICE std::uint64_t* words(std::uint32_t rank, std::uint64_t offset) const {
    return reinterpret_cast<std::uint64_t*>(args_.scratch[rank] + offset);
  }

  SIMT_DEVICE std::uint32_t first_direct() const {
    const bool may_be = relay_ == ChannelWays::kStraight ||
                        (has_mutant(Fault::direct_over_relay) && !side_.pushes());
    return may_be ? first_direct_tile(args_, part_.roles) : ~std::uint32_t{0};
  }

  SIMT_DEVICE device::ll_packet* window_of(std::uint32_t sender, std::uint32_t receiver) const {
    return reinterpret_cast<device::ll_packet*>(args_.scratch[sender] + layout_.windows(channel_)) +
           receiver;
  }

  /// Tells the sender of ring 1 whether it may store straight into `out`, and where; unless it has
  /// no tile to ask for: laps of calls differ by their tiles.
  SIMT_DEVICE void announce(const Cut& cut) {
    if (args_.has_windows == 0 ||
        tile_of(cut, first_direct(), part_.pieces.length(side_.piece)).bytes == 0)
      return;
    window_ = windows::place_of(args_, side_.peer, part_.pieces.out(side_.piece));
    windows::announce(args_, window_of(side_.peer, args_.rank), first_ + 1, window_);
  }

  /// Where tile `index` of ring 1 goes; the first one that may go straight waits for the receiver's
  /// announcement. False: timed out.
  SIMT_DEVICE bool find_place(std::uint32_t index) {
    if (index < first_direct()) return true;
    if (side_.pushes() && index == first_direct() &&
        !windows::await(args_, window_of(args_.rank, side_.peer), side_.peer, first_ + 1, window_))
      return false;
    is_direct_ = window_ != nullptr;
    return true;
  }

  SIMT_DEVICE bool wait() {
    const bool pushes = side_.pushes();
    if (pushes && is_direct_) return true;  // it needs no slot
    std::uint32_t slots = args_.shape.slots;
    if (has_mutant(Fault::credit_too_large)) ++slots;
    if (pushes && prepared_ < slots) return true;  // no slot was used before
    const std::uint64_t needed = prepared_ + 1 - (pushes ? slots : 0);
    if (has_mutant(pushes ? Fault::no_wait_for_credit : Fault::no_wait_for_data)) return true;
    const std::uint64_t* const flag =
        words(args_.rank, layout_.flags(channel_)) + simt::lane_index();
    std::uint64_t seen = 0;
    const auto ready = [&] {
      seen = simt::load_acquire(flag);
      return seen >= needed;
    };
    return device::wait_until(args_.wait_ctx, ready,
                              [&] { return device::wait_target{side_.peer, needed, seen}; });
  }

  SIMT_DEVICE unsigned char* slot() const {
    const std::uint32_t receiver = side_.pushes() ? side_.peer : args_.rank;
    const std::uint32_t sender = side_.pushes() ? args_.rank : side_.peer;
    const auto number = static_cast<std::uint32_t>(prepared_ & (args_.shape.slots - 1));
    if (relay_ == ChannelWays::kStraight)
      return args_.scratch[receiver] +
             layout_.slot(side_.ring(), receiver, sender, channel_, number);
    const bool is_of_one = has_mutant(Fault::relay_slots_of_one);
    return args_.relays[relay_] +
           relay_layout_of(args_).ring(side_.ring(), is_of_one ? 1 : receiver,
                                       is_of_one ? 0 : sender,
                                       has_mutant(Fault::relay_slots_shared) ? 0 : channel_) +
           std::uint64_t{number} * args_.relay_slot_bytes;
  }
  /// Where a tile is pushed.
  SIMT_DEVICE unsigned char* target() const { return is_direct_ ? window_ + tile_.begin : slot(); }
  SIMT_DEVICE const unsigned char* in() const {
    return static_cast<const unsigned char*>(args_.in) + part_.pieces.in(side_.piece) + tile_.begin;
  }
  SIMT_DEVICE unsigned char* out() const {
    return static_cast<unsigned char*>(args_.out) + part_.pieces.out(side_.piece) + tile_.begin;
  }

  /// All lanes of the warp. Entries of a list stand in the order of the lanes.
  SIMT_DEVICE void enter(Work& work) const {
    const RankRoles& roles = part_.roles;
    const std::uint32_t peer = side_.peer;
    const bool keeps = side_.keeps && tile_.bytes != 0 && in() != out();
    const bool is_there = side_.kind == kTakes1 && is_direct_ &&  // its sender stored it in `out`
                          !has_mutant(Fault::direct_tile_moved);
    const bool moves = (uses_slot_ && !side_.combines && !is_there) || keeps;
    const std::uint32_t movers = simt::warp_ballot(moves);
    if (moves) {
      const std::uint32_t place = count_bits(movers & ((1U << simt::lane_index()) - 1));
      work.moves[place] = {side_.pushes() || keeps ? in() : slot(),
                           side_.pushes() ? target() : out(), tile_.bytes};
    }
    if (side_.kind == kPushes1 && side_.combines && uses_slot_)
      work.targets[bits_below(roles.results, peer) + (roles.owner_keeps ? 1 : 0)] = target();
    if (side_.kind == kTakes0 && side_.combines && tile_.bytes != 0) {
      const std::uint32_t own = roles.own_part ? 1U << args_.rank : 0;
      const std::uint32_t sources = roles.combine | own;
      if (side_.uses_ring) {
        std::uint32_t place = bits_below(sources, peer);
        if (has_mutant(Fault::own_part_first)) place = bits_below(roles.combine, peer) + 1;
        work.sources[place] = slot();
      }
      if (peer == args_.rank) {
        if (roles.own_part)
          work.sources[has_mutant(Fault::own_part_first) ? 0 : bits_below(sources, peer)] = in();
        if (roles.owner_keeps)
          work.targets[0] =
              static_cast<unsigned char*>(args_.out) + part_.pieces.out(args_.rank) + tile_.begin;
        work.source_count = bits_below(sources, kMaxRanks);
        work.target_count = bits_below(roles.results, kMaxRanks) + (roles.owner_keeps ? 1 : 0);
      }
    }
    if (side_.kind == kTakes0 && peer == args_.rank)
      work.combined_bytes = side_.combines ? tile_.bytes : 0;
    if (simt::lane_index() == 0) work.move_count = count_bits(movers);
    const std::uint32_t tellers = simt::warp_ballot(uses_slot_);
    if (simt::lane_index() == 0) work.tellers = tellers;
    if (has_mutant(Fault::direct_without_fence)) {
      const std::uint32_t unfenced = simt::warp_ballot(side_.pushes() && window_ != nullptr);
      if (simt::lane_index() == 0) work.unfenced = unfenced;
    }
  }

  SIMT_DEVICE static std::uint32_t count_bits(std::uint32_t set) {
    std::uint32_t count = 0;
    for (; set != 0; set &= set - 1) ++count;
    return count;
  }

  const Args& args_;
  const PartOf<Args>& part_;
  std::uint32_t channel_;
  ScratchLayout layout_;
  RingSide side_;
  std::uint32_t relay_;         ///< its index; or kStraight
  std::uint64_t first_ = 0;     ///< tiles of the ring before this call
  std::uint64_t prepared_ = 0;  ///< ... and those that were prepared
  /// Where the piece is in the receiver's `out`, as the sender addresses it; null: by slots.
  unsigned char* window_ = nullptr;
  Tile tile_{};
  bool is_direct_ = false;  ///< the tile that was prepared last goes there
  bool uses_slot_ = false;  ///< the tile that was prepared last fills or takes one, or is direct
};

/// One lane of the second warp: tells the other side of a ring of a channel, at one peer.
class RingVoice {
 public:
  template <typename Args>
  SIMT_DEVICE RingVoice(const Args& args, const PartOf<Args>& part, std::uint32_t channel)
      : side_(ring_side_of(part.pieces, part.roles, args.rank, args.lag, simt::lane_index())),
        count_address_(count_address(args, channel)),
        flag_(reinterpret_cast<std::uint64_t*>(args.scratch[side_.peer] +
                                               ScratchLayout{args.shape}.flags(channel)) +
              side_.other_kind() * kMaxRanks + args.rank) {
    if (side_.uses_ring && !has_mutant(Fault::counts_not_kept)) told_ = simt::load(count_address_);
  }

  /// After the barrier that begins a step: tells what the block did in the one before. `work`: what
  /// it does now.
  SIMT_DEVICE void tell(const Work& work) {
    const Step now{is_in(work.tellers),
                   has_mutant(Fault::direct_without_fence) && is_in(work.unfenced)};
    // As a planted fault has it: of the step that others are still working at.
    const bool is_early =
        has_mutant(side_.pushes() ? Fault::flag_before_data : Fault::credit_before_taking);
    const Step step = is_early ? now : last_;
    if (step.is_told) {
      ++told_;
      if (!step.is_unfenced && !has_mutant(Fault::flag_without_fence)) simt::fence_sys();
      simt::store_relaxed(flag_, told_);
    }
    last_ = now;
  }

  SIMT_DEVICE void keep_count() {
    if (side_.uses_ring) simt::store(count_address_, told_);
  }

 private:
  struct Step {
    bool is_told;
    bool is_unfenced;
  };
  SIMT_DEVICE static bool is_in(std::uint32_t lanes) {
    return (lanes >> simt::lane_index() & 1U) != 0;
  }

  RingSide side_;
  std::uint64_t* count_address_;
  std::uint64_t* flag_;
  std::uint64_t told_ = 0;  ///< tiles of the ring that this side has told of
  Step last_{};
};

/// All moves of a step, shared among the warps of the group: each copies chunks of one move after
/// another.
SIMT_DEVICE_NOINLINE void run_moves(const simt::warp_group workers, const Work& work) {
  constexpr std::uint32_t kMinChunkBytes = 512;   // bytes: a word of 16 a lane
  constexpr std::uint32_t kMaxChunkBytes = 4096;  // as many as copy_tile has in flight
  const std::uint32_t count = work.move_count;
  if (count == 0) return;
  const std::uint32_t warps = workers.size() / simt::kWarp;
  const std::uint32_t first = workers.rank() / simt::kWarp;
  std::uint32_t chunk = kMinChunkBytes;
  while (chunk < kMaxChunkBytes && chunk * warps < work.moves[0].bytes * count) chunk *= 2;
  const simt::warp_group warp(simt::warp_index(), 1, 0);
  std::uint32_t move = first % count;
  std::uint32_t begin = first / count * chunk;
  for (std::uint32_t unit = first;;) {
    // The longest move decides how many rounds there are; shorter ones have nothing in the last.
    const Work::Move& now = work.moves[move];
    if (begin < now.bytes) {
      const std::uint32_t rest = now.bytes - begin;
      simt::copy_tile(warp, simt::pointer_list<unsigned char, 1>{{now.to + begin}, 1},
                      now.from + begin, rest < chunk ? rest : chunk);
    }
    unit += warps;
    move = unit % count;
    begin = unit / count * chunk;
    bool more = false;
    for (std::uint32_t m = 0; m < count; ++m) more |= begin < work.moves[m].bytes;
    if (!more) break;
  }
}

/// The first `count` of addresses in shared memory, at most `kMaxPeers`: fewer need fewer
/// registers.
template <int kMaxPeers, typename T, typename From>
SIMT_DEVICE simt::pointer_list<T, kMaxPeers> places_of(From* const (&addresses)[kMaxRanks],
                                                       std::uint32_t count) {
  simt::pointer_list<T, kMaxPeers> places{};
  places.count = static_cast<int>(count);
  POLYPATH_UNROLL
  for (int p = 0; p < kMaxPeers; ++p)
    if (p < places.count) places.at[p] = reinterpret_cast<T*>(addresses[p]);
  return places;
}

template <int kMaxPeers, typename Element, SumOrder kOrder>
SIMT_DEVICE void combine(const simt::warp_group& workers, const CollectiveArgs& args,
                         const Work& work) {
  if constexpr (std::is_same_v<Element, Bytes>) {
    const auto to = places_of<kMaxPeers, unsigned char>(work.targets, work.target_count);
    simt::copy_tile(workers, to, work.sources[0], work.combined_bytes);
  } else {
    const auto to = places_of<kMaxPeers, Element>(work.targets, work.target_count);
    const auto from = places_of<kMaxPeers, const Element>(work.sources, work.source_count);
    const std::size_t count = work.combined_bytes / sizeof(Element);
    with_combining(args.reduction, [&](auto combining) {
      constexpr Combining kCombining = decltype(combining)::value;
      if (kOrder == SumOrder::tree && has_mutant(Fault::ranks_in_turn)) {
        simt::reduce_tile(workers, Reduction<Element, kCombining>(args), to, from, count);
        return;
      }
      simt::reduce_tile_inlined(workers, ReductionOf<Element, kCombining, kOrder>(args), to, from,
                                count);
    });
  }
}

/// The warps that do the work of each step. They have nothing of what the first two keep in
/// registers, and know of no channels.
template <typename Element, int kMaxPeers, SumOrder kOrder>
SIMT_DEVICE void run_workers(const CollectiveArgs& args, Work (&works)[2]) {
  const simt::warp_group workers(2, simt::block_size() / simt::kWarp - 2, 1);
  for (std::uint32_t turn = 0;; ++turn) {
    if (simt::barrier_any(0, simt::block_size(), false)) return;
    const Work& work = works[turn % 2];
    if (work.is_end) return;
    run_moves(workers, work);
    if (work.combined_bytes != 0) combine<kMaxPeers, Element, kOrder>(workers, args, work);
  }
}

/// Notes when a channel had its first tile (`word` 0), or its last (1).
SIMT_DEVICE void note_time(const CollectiveArgs& args, std::uint32_t channel, std::uint32_t word) {
  if (args.channel_ns == nullptr || simt::lane_index() != 0) return;
  simt::store(&args.channel_ns[2 * channel + word],
              static_cast<std::uint32_t>(device::global_timer_ns()));
}

/// A channel that a block goes through.
struct Passage {
  std::uint32_t channel;
  Cut cut;
  std::uint32_t steps;
  bool is_first;  ///< of the block
  bool is_last;
};

/// The channel that has this place in the order of channels.
SIMT_DEVICE std::uint32_t channel_at(const CollectiveArgs& args, std::uint32_t place) {
  const bool is_turned = has_mutant(Fault::channels_by_rank) && args.rank % 2 == 1;
  return is_turned ? args.channels - 1 - place : place;
}

/// The channels of this block, one after another: `take(part, passage)`, while it returns true.
template <typename Args, typename Take>
SIMT_DEVICE void for_channels(const Args& args, const Take& take) {
  const PartOf<Args> part = part_in_call(args);
  const std::uint32_t channels =
      has_mutant(Fault::blocks_for_channels) ? simt::grid_size() : args.channels;
  const ChannelWays ways = ways_of(args);
  POLYPATH_NO_UNROLL
  for (std::uint32_t at = simt::block_index(); at < channels; at += simt::grid_size()) {
    Passage passage{};
    passage.channel = channel_at(args, at);
    passage.cut = cut_of(part.pieces.longest, channels, passage.channel, args.tile_bytes, ways,
                         part.roles.hops());
    if (passage.cut.tiles != 0) passage.steps = steps_of(part.roles, args.lag, passage.cut.tiles);
    passage.is_first = at == simt::block_index();
    passage.is_last = at + simt::grid_size() >= channels;
    if (!take(part, passage)) return;
  }
}

/// One channel, as the first warp has it. `turn`: the next step of the block. `meets`: ends the
/// meeting `number` as well. False: timed out.
template <typename Args>
SIMT_DEVICE bool lead_channel(const Args& args, const PartOf<Args>& part, const Passage& passage,
                              Work (&works)[2], std::uint32_t& turn, bool meets,
                              std::uint32_t number) {
  const auto& [channel, cut, steps, is_first, is_last] = passage;
  RingEnd<Args> end(args, part, channel);
  bool gives_up = !end.prepare(cut, 0, works[turn % 2], is_last && steps == 0);
  for (std::uint32_t step = 0;; ++step, ++turn) {
    if (simt::barrier_any(0, simt::block_size(), gives_up)) {
      end.give_up();
      return false;
    }
    if (step == steps) break;
    // Before a lane waits for data, which need not come from a rank that makes another call.
    const bool differs = step == 0 && meets && !end_meeting(args, number);
    gives_up = !end.prepare(cut, step + 1, works[(turn + 1) % 2], is_last && step + 1 == steps);
    gives_up = gives_up || differs;
    if (step + 1 == args.lag) note_time(args, channel, 0);
  }
  note_time(args, channel, 1);
  ++turn;
  return true;
}

/// One channel, as the second warp has it. False: the first one timed out.
template <typename Args>
SIMT_DEVICE bool tell_channel(const Args& args, const PartOf<Args>& part, const Passage& passage,
                              const Work (&works)[2], std::uint32_t& turn) {
  RingVoice voice(args, part, passage.channel);
  for (std::uint32_t step = 0; step <= passage.steps; ++step, ++turn) {
    if (simt::barrier_any(0, simt::block_size(), false)) return false;
    voice.tell(works[turn % 2]);
  }
  voice.keep_count();
  return true;
}

/// The first warp, of which each lane looks after what one side of a ring needs.
template <typename Args>
SIMT_DEVICE void run_leader(const Args& args, Work (&works)[2]) {
  const bool meets = simt::block_index() == 0;
  const std::uint32_t number = meets ? begin_meeting(args) : 0;
  if (args.count == 0) {
    if (meets) end_meeting(args, number);
    return;
  }
  std::uint32_t turn = 0;
  for_channels(args, [&](const PartOf<Args>& part, const Passage& passage) {
    return lead_channel(args, part, passage, works, turn, meets && passage.is_first, number);
  });
}

/// The second warp, of which each lane tells of one side of a ring.
template <typename Args>
SIMT_DEVICE void run_teller(const Args& args, const Work (&works)[2]) {
  std::uint32_t turn = 0;
  for_channels(args, [&](const PartOf<Args>& part, const Passage& passage) {
    return tell_channel(args, part, passage, works, turn);
  });
}

/// `Element`: of reduce_tile, or Bytes for the operations that combine nothing.
template <typename Element, SumOrder kOrder, typename Args>
SIMT_DEVICE void run(const Args& args) {
  using Works = Work[2];
  SIMT_SHARED(Works, works);
  simt::grid_dependency_wait();
  if (simt::warp_index() == 0)
    run_leader(args, works);
  else if (args.count == 0)
    return;
  else if (simt::warp_index() == 1)
    run_teller(args, works);
  else if (args.shape.ranks <= kMaxRanks / 2)
    run_workers<Element, static_cast<int>(kMaxRanks / 2), kOrder>(args, works);
  else
    run_workers<Element, static_cast<int>(kMaxRanks), kOrder>(args, works);
}

}  // namespace polypath::channels
