// Where a pair lies. C++17: shared by host and device; the host makes it, a kernel has it by
// value.
#pragma once

#include <cstdint>

#include "polypath/device/wait_context.hpp"

namespace polypath::device {

/// Addresses are as the side has them that uses the view. All memory begins as zeros.
struct spsc_view {
  // With the producer:
  std::uint64_t* credit;  ///< turns that have been read
  std::uint64_t* sent;    ///< the producer's turn, between its kernels

  // With the consumer:
  unsigned char* cells;     ///< 1 << capacity_log2
  std::uint64_t* received;  ///< the consumer's turn, between its kernels

  std::uint32_t capacity_log2;
  std::uint32_t segment_log2;  ///< turns that are given back together; a ring has at least four
  std::uint32_t number;        ///< of this pair, in the status record
  wait_context wait_ctx;
};

}  // namespace polypath::device
