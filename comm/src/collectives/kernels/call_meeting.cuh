// How the ranks of a call find out whether all of them make the same one.
//
// 1. When a call begins, one warp of block 0 stores a mark into the scratch of every other rank:
//    the number of the call, and what it is (call_mark.h), in one packet of 16 bytes.
// 2. The same warp waits for the marks of all other ranks, and compares them with its own. If they
//    differ, the call ends with an error on all ranks, which names both calls.
// 3. So no rank ends a call before every rank has begun it.
//
// A rank has two marks of each peer, used in turn: a peer begins call n + 2 after it ended call
// n + 1, which it did after every rank began call n + 1, and so had ended call n.
//
// Calls are counted in the scratch, those of all families together, so that a captured graph
// replays. The count is the same on all ranks, as calls of a communicator run one after another.
//
// The marks travel at the same time as the data of the call, and the warp that waits has no other
// work in a small call.
#pragma once

#include <cstdint>
#include <type_traits>

#include "collectives/kernels/collective_args.h"
#include "collectives/kernels/mutants.h"
#include "collectives/kernels/rank_roles.h"
#include "polypath/device/wait.cuh"
#include "simt/platform.cuh"

namespace polypath {

/// The part of this rank, as kernels see it.
template <typename Args>
SIMT_DEVICE PartOf<Args> part_in_call(const Args& args) {
  PartOf<Args> part = part_of(args);
  if constexpr (std::is_same_v<Args, UnevenArgs>)
    if (has_mutant(Fault::parts_at_begin)) part.pieces.out_stride = 0;
  return part;
}

SIMT_DEVICE device::ll_packet* mark_at(const CollectiveArgs& args, std::uint32_t receiver,
                                       std::uint32_t sender, std::uint32_t number) {
  const std::uint32_t half = has_mutant(Fault::marks_not_alternated) ? 0 : number % 2;
  return reinterpret_cast<device::ll_packet*>(args.scratch[receiver] + ScratchLayout::marks(half)) +
         sender;
}

SIMT_DEVICE bool has_mark_of_peer(const CollectiveArgs& args) {
  return simt::lane_index() < args.shape.ranks && simt::lane_index() != args.rank;
}

SIMT_DEVICE std::uint64_t* meetings_of(const CollectiveArgs& args) {
  return reinterpret_cast<std::uint64_t*>(args.counts + ScratchLayout::meetings());
}

/// All lanes of one warp of block 0: sends this rank's marks. Returns the number of the call.
SIMT_DEVICE std::uint32_t begin_meeting(const CollectiveArgs& args) {
  const auto number = static_cast<std::uint32_t>(simt::load(meetings_of(args)) + 1);
  simt::warp_sync();  // all have read it before end_meeting() counts
  if (has_mark_of_peer(args))
    device::store_relaxed<device::system_scope>(
        mark_at(args, simt::lane_index(), args.rank, number),
        device::ll_packet{{args.mark.what, static_cast<std::uint32_t>(args.mark.count),
                           static_cast<std::uint32_t>(args.mark.count >> 32)},
                          number});
  return number;
}

/// The same lanes: waits for the marks of all peers, and counts the call. False: timed out, or this
/// lane's peer makes another call.
SIMT_DEVICE_NOINLINE bool end_meeting(const CollectiveArgs& args, std::uint32_t number) {
  if (simt::lane_index() == 0) simt::store(meetings_of(args), std::uint64_t{number});
  if (!has_mark_of_peer(args) || has_mutant(Fault::no_arrivals)) return true;
  const device::ll_packet* const from = mark_at(args, args.rank, simt::lane_index(), number);
  device::ll_packet seen{};
  const auto ready = [&] {
    seen = device::load_relaxed<device::system_scope>(from);
    return seen.lap == number;
  };
  if (!device::wait_until(args.wait_ctx, ready, [&] {
        return device::wait_target{simt::lane_index(), number, seen.lap};
      }))
    return false;
  const std::uint64_t count = seen.data[1] | std::uint64_t{seen.data[2]} << 32;
  if ((seen.data[0] == args.mark.what && count == args.mark.count) ||
      has_mutant(Fault::call_not_compared))
    return true;
  device::report(args.wait_ctx, device::wait_error::mismatch,
                 {simt::lane_index(), std::uint64_t{args.calls} << 32 | args.mark.what,
                  seen.data[0], args.mark.count, count});
  return false;
}

}  // namespace polypath
