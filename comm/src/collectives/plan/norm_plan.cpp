#include "collectives/plan/norm_plan.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "collectives/plan/kernel_cost.hpp"

namespace polypath {
namespace {

/// The bytes of a message that a block sends before another is worth its start, and the most
/// blocks: as of calls by cells (kernel_cost.cpp).
constexpr std::uint64_t kBytesABlock = 2 * kKiB;
constexpr std::uint64_t kMaxBlocks = 96;
/// Assumed: what a block reads of its GPU's memory, and what a row takes besides (loads of what is
/// added, the block's barrier, stores).
constexpr double kReadGbps = 100;
constexpr double kRowUs = 0.6;
/// Assumed: what a kernel takes that follows another one on a stream, and no bytes.
constexpr double kNormStartUs = 2.0;
/// A cell of 16 bytes holds 12 of data.
constexpr double kLinkBytesAByte = 4.0 / 3;
/// What a norm reads and writes for each byte of a row.
constexpr double kMovedBytesAByte = 4;
constexpr std::uint64_t kMaxNormBlocks = 1024;

double fused_us(const Node& node, const CollectiveRequest& request, std::uint64_t rows,
                const NormPlan& plan) {
  const auto blocks = static_cast<std::uint64_t>(plan.blocks);
  const auto rows_of_block = static_cast<double>((rows + blocks - 1) / blocks);
  const double row_bytes = static_cast<double>(request.bytes()) / static_cast<double>(rows);
  const double row_us = kRowUs + row_bytes * kLinkBytesAByte *
                                     static_cast<double>(request.ranks()) /
                                     (kReadGbps * kBytesPerGbpsUs);
  return kernel_cost(node, request, Algorithm::cells, {plan.blocks, 0, 1}, plan.blocks).us +
         rows_of_block * row_us;
}

}  // namespace

NormPlan plan_norm(const Node& node, const CollectiveRequest& request, std::uint64_t rows,
                   const NormLimits& limits, double all_reduce_us) {
  NormPlan plan;
  plan.apart_us = all_reduce_us + kNormStartUs +
                  kMovedBytesAByte * static_cast<double>(request.bytes()) /
                      (node.costs.memory_gbps * kBytesPerGbpsUs);
  const std::uint64_t most =
      limits.max_blocks > 0 ? std::min<std::uint64_t>(kMaxBlocks, limits.max_blocks) : kMaxBlocks;
  plan.blocks = static_cast<int>(std::clamp<std::uint64_t>(
      std::max(rows, (request.bytes() + kBytesABlock - 1) / kBytesABlock), 1, most));
  if (rows == 0 || rows > limits.max_rows || !why_no_kernels(node, request).empty()) return plan;
  plan.fused_us = fused_us(node, request, rows, plan);
  plan.is_fused = plan.fused_us < plan.apart_us;
  return plan;
}

unsigned norm_blocks(std::uint64_t rows) {
  return static_cast<unsigned>(std::clamp<std::uint64_t>(rows, 1, kMaxNormBlocks));
}

}  // namespace polypath
