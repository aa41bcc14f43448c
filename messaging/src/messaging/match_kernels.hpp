// Which kernels and which code of the host match in which order: the one place that knows all.
#pragma once

#include <cstdint>
#include <span>

#include "messaging/host_matching.hpp"
#include "polypath/messaging/matching.h"

namespace polypath {

/// The kernels of one order. Their parameters: kernels/matching_kernels.cuh.
struct MatchKernels {
  std::span<const unsigned char> image;
  const char* queues;  ///< kernels' names
  const char* many;    ///< the same, where there are many; may be the same kernel
  const char* grid;
  const char* outcome;        ///< after the phases
  const char* together;       ///< all phases and the outcome by blocks that run at once, or null
  std::uint32_t queue_bytes;  ///< of shared memory
  std::uint32_t threads_of_many;  ///< of a block that is one of many on its multiprocessor
  std::uint32_t phases;           ///< a launch each
  std::uint32_t max_capacity;
  bool (*runs_in_one_warp)(unsigned phase);
  std::uint64_t (*workspace_bytes)(std::uint32_t capacity);
  device::match_outcome (*on_host)(const device::match_batch& batch);
};

/// The kernels of a polypath_match_order; throws InvalidArgument for a number that is none.
const MatchKernels& order_of_matching(std::int64_t order);

/// What carries over, of any order.
std::span<const unsigned char> carry_image() noexcept;
inline constexpr const char* kAppendKernel = "polypath_match_append";
inline constexpr const char* kKeepKernel = "polypath_match_keep";

}  // namespace polypath
