// What the kernels are told that prove a path: the one agreement between host and device. C++17.
#pragma once

#include <cstdint>

#include "polypath/device/spsc_view.hpp"

namespace polypath {

/// Each warp has a pair of its own, in both kernels alike.
inline constexpr std::uint32_t kProofBlocks = 16;
inline constexpr std::uint32_t kProofThreads = 128;
inline constexpr std::uint32_t kProofPairs = kProofBlocks * kProofThreads / 32;

/// Longer no warp works: a GPU takes some milliseconds.
inline constexpr std::uint64_t kProofNs = 2'000'000'000;

/// The item: 120 bytes that follow from its turn.
struct ProbeItem {
  std::uint32_t words[30];
};

struct LL128ProbeArgs {
  device::spsc_view view;  ///< of the first pair
  /// From one pair to the next, with the producer and with the consumer.
  std::uint64_t producer_bytes;
  std::uint64_t consumer_bytes;
  std::uint32_t calls;
  std::uint32_t* torn;      ///< with the consumer: counts lines
  std::uint32_t* late;      ///< with the consumer: warps for which it took too long
  std::uint32_t* stop;      ///< with the producer: its abort word
  std::uint32_t* stop_own;  ///< with the consumer
};

}  // namespace polypath
