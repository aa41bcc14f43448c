// What the kernels of active_kernels.cu are told, on the host and on the device.
#pragma once

#include <cstdint>

#include "polypath/device/active_messages_view.hpp"
#include "queue_kernels.h"

namespace polypath::test {

/// Every team of every rank sends, and then executes until all have closed. Message m of team t
/// goes to rank (t + m) % ranks of them, all 32 (or 1) of its threads' at once.
struct ActiveRow {
  device::active_messages_view view;
  Members members;
  std::uint32_t teams;  ///< of a rank
  std::uint32_t sends;  ///< of each team
  std::uint32_t order;  ///< 1: one team executes, and looks at the order
  // For this rank. `of_rank` places for each rank's messages: by team, call and thread.
  std::uint32_t of_rank;
  std::uint32_t* executed;  ///< times, of each message of each rank
  std::uint32_t* answered;  ///< times, of each of this rank's own
  std::uint32_t* wrong;     ///< messages with other arguments than were sent
  std::uint32_t* last;      ///< of each rank's teams, with `order`: the call that began last
  std::uint32_t* done;      ///< teams that have sent
  std::uint32_t* results;   ///< of each team: how progress ended
  std::uint64_t* counts;    ///< sent to and executed of each rank, at the end
};

}  // namespace polypath::test
