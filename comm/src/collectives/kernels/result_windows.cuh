// How results of a call by channels go straight into the receivers' buffers.
//
// A rank announces to each sender of ring 1, once a channel, the place of the sender's piece in its
// `out`, as the sender's GPU addresses it, or null: then tiles go by slots. It does so alone. So
// some ranks may announce and others not, and a captured graph announces the buffer of its launch.
//
// An announcement is a packet of 16 bytes in the sender's scratch: the address, and a lap, which is
// the number of tiles that the ring has had before this channel's first one, plus 1. The pair has a
// tile in each channel that is announced, so laps grow from one announcement to the next. The
// receiver ends its call after the flag of the sender's last tile, so the packet was read before
// the next one is stored.
//
// The upper half of the lap is mixed with the mark of the call. So nothing is stored into a buffer
// of a rank that makes another call, which may be shorter: the sender waits until the call is ended
// by the marks (call_meeting.cuh).
//
// A rank whose wait timed out overwrites its announcements by null. So a sender that comes later,
// when the buffer may serve something else, does not store into it.
#pragma once

#include <cstdint>

#include "collectives/kernels/collective_args.h"
#include "collectives/kernels/mutants.h"
#include "collectives/kernels/rank_roles.h"
#include "polypath/device/wait.cuh"
#include "simt/platform.cuh"

namespace polypath::windows {

/// Where `peer` may store the piece at `offset` of this rank's `out`, as its GPU addresses it.
/// Null: nowhere.
SIMT_DEVICE unsigned char* place_of(const CollectiveArgs& args, std::uint32_t peer,
                                    std::uint64_t offset) {
  unsigned char* const out = args.windows[peer];
  if (out == nullptr) return nullptr;
  if (!may_go_straight(args) && !has_mutant(Fault::window_of_own_input)) return nullptr;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(out + offset) % kWindowAlignment == 0;
  return is_aligned || has_mutant(Fault::window_misaligned) ? out + offset : nullptr;
}

/// The upper word of a lap of this call.
SIMT_DEVICE std::uint32_t tag_of(const CollectiveArgs& args, std::uint64_t lap) {
  constexpr std::uint32_t kMixing = 0x9E3779B1U;  // odd: no two counts of 32 bits have one product
  const auto upper = static_cast<std::uint32_t>(lap >> 32);
  if (has_mutant(Fault::window_call_unchecked)) return upper;
  return upper ^ args.mark.what ^ static_cast<std::uint32_t>(args.mark.count) * kMixing ^
         static_cast<std::uint32_t>(args.mark.count >> 32);
}

/// Stores an announcement at `to`, in the sender's scratch.
SIMT_DEVICE void announce(const CollectiveArgs& args, device::ll_packet* to, std::uint64_t lap,
                          const unsigned char* place) {
  const auto address = reinterpret_cast<std::uint64_t>(place);
  device::store_relaxed<device::system_scope>(
      to, device::ll_packet{{static_cast<std::uint32_t>(address),
                             static_cast<std::uint32_t>(address >> 32), tag_of(args, lap)},
                            static_cast<std::uint32_t>(lap)});
}

/// Waits for the announcement of this lap at `from`, by rank `receiver`. False: timed out.
SIMT_DEVICE bool await(const CollectiveArgs& args, const device::ll_packet* from,
                       std::uint32_t receiver, std::uint64_t lap, unsigned char*& place) {
  device::ll_packet seen{};
  const auto ready = [&] {
    seen = device::load_relaxed<device::system_scope>(from);
    if (has_mutant(Fault::window_not_awaited)) return true;
    if (has_mutant(Fault::window_lap_unchecked)) return seen.lap != 0;
    return seen.lap == static_cast<std::uint32_t>(lap) && seen.data[2] == tag_of(args, lap);
  };
  if (!device::wait_until(args.wait_ctx, ready,
                          [&] { return device::wait_target{receiver, lap, seen.lap}; }))
    return false;
  place = reinterpret_cast<unsigned char*>(seen.data[0] | std::uint64_t{seen.data[1]} << 32);
  return true;
}

}  // namespace polypath::windows
