// What the kernel is told that puts small messages for a stream: the one agreement between host and
// device. C++17, plain data.
#pragma once

#include <cstdint>

#include "comm/wait_error.hpp"

namespace polypath {

/// Threads of each block.
inline constexpr std::uint32_t kStreamPutThreads = 512;
/// Limits of one kernel.
inline constexpr std::uint32_t kMaxPutParts = 16;
inline constexpr std::uint32_t kMaxPutWaits = 16;

/// One put: bytes, and after them a word of the same rank. One block makes all puts to a rank, in
/// their order; or several share out one put that is alone.
struct PutPart {
  const unsigned char* from;
  unsigned char* to;
  std::uint64_t bytes;  ///< 0: the word alone
  std::uint64_t* word;  ///< null: none
  std::uint64_t value;
  std::uint32_t first_block;
  std::uint32_t blocks;
  std::uint32_t* arrived;  ///< of several blocks: how many have stored theirs; 0 before, and after
};

/// A word of this rank, and where it is, as the status record says it.
struct PutWait {
  const std::uint64_t* word;
  std::uint64_t value;
  std::uint64_t offset;
  std::uint64_t bytes;
};

/// The one parameter. Blocks begin in their order, so the block after those that put is the one
/// that waits: all puts are under way by then.
struct StreamPutArgs {
  PutPart parts[kMaxPutParts];
  PutWait waits[kMaxPutWaits];
  std::uint32_t part_count;
  std::uint32_t wait_count;
  std::uint32_t put_blocks;
  wait_context wait_ctx;
};

}  // namespace polypath
