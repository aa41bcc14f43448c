// Where a queue lies. C++17: shared by host and device; the host makes it, a kernel has it by
// value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/wait_context.hpp"

namespace polypath::device {

/// Addresses are as the side has them that uses the view: producers and consumers may have
/// different ones. All memory begins as zeros, but `closed`: kOpen.
struct queue_view {
  static constexpr std::uint64_t kOpen = ~std::uint64_t{0};
  /// Words of segments are apart, so that their users do not meet at one place of the cache.
  static constexpr unsigned kWordStride = 32;

  // With the producers:
  std::uint64_t* tail;    ///< turns that producers have taken
  std::uint32_t* credit;  ///< of each segment: laps that all of its cells have been read in

  // With the consumers:
  unsigned char* cells;   ///< 1 << capacity_log2
  std::uint64_t* head;    ///< turns that consumers have taken
  std::uint32_t* read;    ///< of each segment: cells read, of all laps (modulo 2^32)
  std::uint64_t* closed;  ///< turns from here on will never come

  std::uint32_t capacity_log2;
  std::uint32_t segment_log2;  ///< cells of a segment; a ring has at least four
  std::uint32_t number;        ///< of this queue, in the status record
  wait_context wait_ctx;

  /// Where consumers give back, when producers cannot have that near: `credit` is then what they
  /// have seen of it. Looked at where that is not enough. Null: consumers give back to `credit`.
  const std::uint32_t* credit_source = nullptr;
};

}  // namespace polypath::device
