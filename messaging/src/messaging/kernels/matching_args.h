/* Parameters of the kernels of matching. C++17: shared by host and device. */
#pragma once

#include "polypath/device/detail/match_types.hpp"

namespace polypath {

/// A matcher's memory on its GPU: what is carried over, and what happened.
struct MatchState {
  // What is left over, and with it what is new: of the batch under way.
  std::uint32_t unmatched_messages;
  std::uint32_t unmatched_receives;
  std::uint32_t messages;
  std::uint32_t receives;
  std::uint32_t is_full;
  std::uint32_t meetings;       ///< of the blocks of a launch; may be put back between two
  std::uint64_t messages_seen;  ///< numbers given out
  std::uint64_t receives_seen;
  device::match_outcome outcome;
  // Since the matcher was made.
  std::uint64_t matches;
  std::uint64_t refused;  ///< batches that were not done
};

/// What is left over, in its order, and where what is new comes after it.
struct MatchBuffers {
  device::envelope* messages;
  device::envelope* receives;
  std::uint64_t* message_numbers;
  std::uint64_t* receive_numbers;
  std::uint32_t* matched_message;
  std::uint32_t* matched_receive;
};

/// Queues that have nothing to do with each other; a block matches one after another.
struct MatchQueuesArgs {
  device::match_batch batch;            ///< of the only queue, or the arrays of all
  const std::uint32_t* message_begins;  ///< queues + 1; null: there is one
  const std::uint32_t* receive_begins;
  std::uint32_t queues;
  std::uint32_t capacity;
  std::uint32_t uses_leftovers;  ///< counts are those of the state
  std::uint32_t reserved;
  device::match_outcome* outcomes;  ///< one for each queue; may be null
  MatchState* state;
};

/// One queue, by the whole GPU.
struct MatchGridArgs {
  device::match_batch batch;
  unsigned char* workspace;
  std::uint32_t capacity;
  std::uint32_t uses_leftovers;    ///< counts are those of the state
  device::match_outcome* outcome;  ///< may be null
  MatchState* state;
};

/// What comes before a batch that is carried over, and after it.
struct MatchCarryArgs {
  MatchState* state;
  MatchBuffers buffers;
  const device::envelope* messages;  ///< that are new
  const device::envelope* receives;
  std::uint32_t message_count;
  std::uint32_t receive_count;
  std::uint32_t capacity;
  std::uint32_t reserved;
  device::match_pair* pairs;
  device::match_outcome* outcome;
};

/// The most messages and receives of a queue of many, POLYPATH_MATCH_BATCHED_MAX.
inline constexpr std::uint32_t kMaxPerQueue = 1024;

/// The most threads of a block, whole warps.
inline constexpr unsigned kMatchThreads = 1024;
inline constexpr unsigned kMatchGridThreads = 256;
/// For launches whose blocks run at once.
inline constexpr unsigned kMatchTogetherThreads = 512;
/// For queues of which several share an SM.
inline constexpr unsigned kMatchManyThreads = 512;
inline constexpr unsigned kMatchManyBlocks = 3;
/// For tables: shared memory has room for six on an SM.
inline constexpr unsigned kMatchTableThreads = 256;
inline constexpr unsigned kMatchTableBlocks = 6;

}  // namespace polypath
