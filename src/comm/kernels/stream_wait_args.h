// What the kernel is told by which a stream waits: the one agreement between host and device.
// C++17, plain data.
#pragma once

#include <cstdint>

#include "comm/status_record.hpp"

namespace polypath {

/// Of the one block that waits.
inline constexpr std::uint32_t kStreamWaitThreads = 32;

/// A wait for words of this rank's memory, all for the same value. The one parameter.
struct StreamWaitArgs {
  const std::uint64_t* words;
  std::uint32_t count;  ///< of words
  std::uint32_t own;    ///< the one that is not waited for; kNobody: all are
  /// The least that is waited for, in the circle of 64-bit numbers.
  std::uint64_t value;
  /// A signal: where it is, as the status record says it. 0 bytes: a barrier, with a word for each
  /// rank.
  std::uint64_t offset;
  std::uint64_t bytes;
  Patience patience;
};

}  // namespace polypath
