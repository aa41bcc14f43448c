// Where the slots of channels lie that go over GPUs that are no ranks (relays). C++17, pure
// functions, the same for hosts and devices.
//
// A channel over a relay has its slots in memory of the relay: the sender stores tiles there, the
// receiver loads them from there. Flags stay in the ranks' scratch. So no kernel runs on a relay,
// and no copy is issued.
#pragma once

#include <cstdint>

#include "collectives/channel_ways.h"
#include "collectives/kernels/collective_args.h"

namespace polypath {

/// Where the memory of a relay holds the slots of all ranks' rings, in bytes. The same on all
/// relays, and in all calls of a communicator: a rank may fill slots of its next call while another
/// still reads some of the last one.
struct RelayLayout {
  ScratchShape shape;  ///< of the scratch with the flags of these channels
  ChannelWays ways;
  std::uint32_t slot_bytes;  ///< a multiple of 128

  /// The number of channels that go over one relay.
  constexpr std::uint32_t channels() const {
    return (shape.channels + ways.period() - 1) / ways.period();
  }
  /// The first slot of a ring from `sender` to `owner`, which are not the same; the others follow.
  constexpr std::uint64_t ring(std::uint32_t ring, std::uint32_t owner, std::uint32_t sender,
                               std::uint32_t channel) const {
    const std::uint32_t place = sender < owner ? sender : sender - 1;
    const std::uint64_t pair =
        (std::uint64_t{ring} * shape.ranks + owner) * (shape.ranks - 1) + place;
    return (pair * channels() + channel / ways.period()) * shape.slots * slot_bytes;
  }
  constexpr std::uint64_t bytes() const {
    return std::uint64_t{2} * shape.ranks * (shape.ranks - 1) * channels() * shape.slots *
           slot_bytes;
  }
};

/// The ways of a call's channels, and the memory of its relays.
constexpr ChannelWays ways_of(const CollectiveArgs& args) {
  return {args.shape.ranks, args.relay_count};
}
constexpr RelayLayout relay_layout_of(const CollectiveArgs& args) {
  return {args.shape, ways_of(args), args.relay_slot_bytes};
}

}  // namespace polypath
