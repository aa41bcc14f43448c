// What the kernel is told by which a stream waits: the one agreement between host and device.
// C++17, plain data.
#pragma once

#include <cstdint>

#include "comm/wait_error.hpp"

namespace polypath {

/// Threads of the one block that waits.
inline constexpr std::uint32_t kStreamWaitThreads = 32;

/// A wait for a word of this rank's memory. The one parameter.
struct StreamWaitArgs {
  const std::uint64_t* word;
  /// The least that is waited for, in the circle of 64-bit numbers.
  std::uint64_t value;
  /// Where the word is, as the status record says it.
  std::uint64_t offset;
  std::uint64_t bytes;
  wait_context wait_ctx;
};

/// Words that one kernel tells and waits for.
inline constexpr std::uint32_t kMaxSignals = 8;
inline constexpr std::uint32_t kMaxWaits = 16;
/// For values that are counted in epochs: the epoch stands above these bits.
inline constexpr unsigned kEpochShift = 24;

struct WordValue {
  std::uint64_t* word;
  std::uint64_t value;
};

/// Tells words of other ranks, and then waits for words of this rank's memory. The one parameter.
struct StreamSignalArgs {
  WordValue signals[kMaxSignals];
  WordValue awaited[kMaxWaits];
  std::uint32_t signal_count;
  std::uint32_t awaited_count;
  /// Null: values are as they stand. Otherwise they are of the epoch that this word of the rank's
  /// memory holds, so that a graph has others at each launch.
  std::uint64_t* epoch;
  bool begins_epoch;          ///< counts it up first
  const std::uint64_t* base;  ///< of the memory that the words are in, and its bytes: as the status
  /// record says it. 0 bytes: a barrier, with a word for each rank; of values that are counted in
  /// epochs the record has the epoch.
  std::uint64_t bytes;
  wait_context wait_ctx;
};

}  // namespace polypath
