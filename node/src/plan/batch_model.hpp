// How long a batch of small copies takes, by the driver's batch and by kernels. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "topology/node.hpp"

namespace polypath {

/// The part of the rate of copy engines that kernels reach with 4 to 64 KiB a block: 51 of 55.5
/// GB/s over one PCIe link (docs/blocks.md).
inline constexpr double kKernelShare = 0.92;

/// Shares of a batch are those of a transfer of this size, where the links alone decide.
inline constexpr std::uint64_t kBatchShareBytes = std::uint64_t{256} << 20;

/// cuMemcpyBatchAsync of `count` copies over a link of `gbps`.
[[nodiscard]] inline double native_batch_us(const Costs& costs, std::size_t count,
                                            std::uint64_t bytes, double gbps) noexcept {
  return costs.copy_start_us + costs.batch_entry_us * static_cast<double>(count) +
         static_cast<double>(bytes) / (gbps * 1e3);
}

/// A kernel on the caller's stream, and on `others` further GPUs, over routes that carry `gbps`
/// together.
[[nodiscard]] inline double kernel_batch_us(const Costs& costs, int others, std::uint64_t bytes,
                                            double gbps) noexcept {
  // The table's entry is read first, then the bytes.
  double us = costs.launch_us + costs.kernel_start_us + 2 * costs.flag_us;
  // Each further GPU: a wait, a launch, a record, a wait.
  if (others > 0) us += 2 * costs.event_us + others * (costs.launch_us + 3 * costs.call_us);
  return us + static_cast<double>(bytes) / (gbps * kKernelShare * 1e3);
}

}  // namespace polypath
