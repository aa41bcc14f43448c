// Below which size no transfer of a node is split: what callers ask once, so that small copies need
// not ask.
#pragma once

#include <cstdint>

#include "plan/planner.hpp"

namespace polypath {

/// Bytes; UINT64_MAX where nothing is ever split.
struct Thresholds {
  std::uint64_t gpu_to_gpu = UINT64_MAX;
  std::uint64_t host_to_gpu = UINT64_MAX;
  std::uint64_t gpu_to_host = UINT64_MAX;
  std::uint64_t pageable_to_gpu = UINT64_MAX;  ///< host memory that is not pinned
  std::uint64_t gpu_to_pageable = UINT64_MAX;
};

/// The least size, over the pairs of each kind, whose plan is not native: sought by doubling up to
/// 1 GiB, then by halving, to 4 KiB.
Thresholds smallest_split(Planner& planner, const Node& node);

}  // namespace polypath
