// What the kernels of channel_bench.cu and active_bench.cu are told, on the host and on the
// device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/active_messages_view.hpp"
#include "polypath/device/channel_view.hpp"
#include "queue_bench.h"

namespace messaging_bench {

/// One side; `begins`: sends first. 8 bytes there and back, so often.
struct ChannelTrips {
  polypath::device::channel_view view;
  std::uint32_t begins;
  std::uint32_t rounds;
  std::uint64_t* place;  ///< two words of this side
  Tally* tally;
};

/// Block b sends, or receives, its part of each message in context b.
struct ChannelStream {
  polypath::device::channel_view view;
  std::uint32_t sends;
  std::uint32_t rounds;
  unsigned char* data;
  std::uint64_t bytes;  ///< of a message; the parts differ by a multiple of 16
  std::uint32_t* failed;
};

/// In each context, in each step: all receives are posted, in another order than the messages come,
/// then all is sent, then all is waited for.
struct ChannelSteps {
  polypath::device::channel_view view;
  std::uint32_t steps;
  std::uint32_t messages;       ///< of a step to the other rank, and from it
  std::uint32_t message_words;  ///< of 8 bytes
  std::uint64_t* sent;          ///< `messages` of each context
  std::uint64_t* received;
  polypath::device::request* requests;
  Tally* tally;
};

/// The first `senders` blocks send to rank `to`, the others execute.
struct ActiveRun {
  polypath::device::active_messages_view view;
  std::uint32_t senders;
  std::uint32_t blocks;
  std::uint32_t calls;  ///< of a warp
  std::uint32_t to;
  std::uint32_t* done;  ///< warps that have sent
  Tally* tally;
};

}  // namespace messaging_bench
