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
/// Assumed: what a block adds up of the cells of its rows, what a row takes besides (its barrier,
/// the root, stores), and what blocks take that share one, to exchange their sums.
constexpr double kAddGbps = 50;
constexpr double kRowUs = 0.3;
constexpr double kExchangeUs = 0.5;
/// As kernels/norm_args.h, which is not for plans.
constexpr int kMaxTeam = 16;
/// Assumed: what a kernel takes that follows another one on a stream, and no bytes.
constexpr double kNormStartUs = 2.0;
/// A cell of 16 bytes holds 12 of data.
constexpr double kLinkBytesAByte = 4.0 / 3;
/// What a norm reads and writes for each byte of a row.
constexpr double kMovedBytesAByte = 4;
constexpr std::uint64_t kMaxNormBlocks = 1024;

/// What a block does after the data have come.
double rows_us(const CollectiveRequest& request, std::uint64_t rows, int blocks, int team) {
  const auto teams = static_cast<std::uint64_t>(blocks / team);
  const auto rows_of_team = static_cast<double>((rows + teams - 1) / teams);
  const double row_bytes = static_cast<double>(request.bytes()) / static_cast<double>(rows);
  const double add_us = row_bytes * kLinkBytesAByte * static_cast<double>(request.ranks()) /
                        (kAddGbps * kBytesPerGbpsUs * team);
  return rows_of_team * (kRowUs + add_us + (team > 1 ? kExchangeUs : 0));
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
  if (rows == 0 || rows > limits.max_rows || !why_no_peer_access(node, request).empty())
    return plan;
  const int team = std::clamp(plan.blocks / static_cast<int>(rows), 1, kMaxTeam);
  const double alone_us = rows_us(request, rows, plan.blocks, 1);
  const double shared_us = rows_us(request, rows, plan.blocks, team);
  if (shared_us < alone_us) plan.team = team;
  plan.fused_us = kernel_cost(node, request, Algorithm::cells, {plan.blocks, 0, 1}, {}).us +
                  std::min(alone_us, shared_us);
  plan.is_fused = plan.fused_us < plan.apart_us;
  return plan;
}

unsigned norm_blocks(std::uint64_t rows) {
  return static_cast<unsigned>(std::clamp<std::uint64_t>(rows, 1, kMaxNormBlocks));
}

}  // namespace polypath
