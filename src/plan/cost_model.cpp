#include "plan/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/units.hpp"

namespace polypath {
namespace {

/// Host links are shared with whatever else the machine does, and a share that is too large costs more
/// than one that is too small gains: at 512 MiB on 4 x H200 with 10, 12, 14 % by the host 437, 396 and
/// 346 GB/s. With 0.95 the host's share still ended last there, by 1 to 2 % of the time.
constexpr double kHostCaution = 0.93;

constexpr std::uint64_t kMostChunkOverHostLink = 4 * kMiB;
constexpr std::uint64_t kPage = 4 * kKiB;

}  // namespace

double RouteCost::chunk_bytes(double bytes, const ChunkLimits& limits) const noexcept {
  const auto high = static_cast<double>(max_chunk_bytes);
  const auto low = std::min(high, static_cast<double>(limits.min_chunk_bytes));
  double chunk = std::sqrt(std::max(0.0, bytes) * gap_us * fill_bytes_per_us);
  if (limits.chunk_bytes != 0) chunk = static_cast<double>(limits.chunk_bytes);
  if (limits.chunks != 0) chunk = bytes / limits.chunks;
  chunk = limits.chunk_bytes != 0 ? std::min(chunk, high) : std::clamp(chunk, low, high);
  return std::max(1.0, std::min(chunk, bytes));
}

double RouteCost::time_us(double bytes, double chunk) const noexcept {
  const double moving = fixed_us + bytes / bytes_per_us;
  return staged ? moving + chunk / fill_bytes_per_us + gap_us * bytes / chunk : moving;
}

double staged_fixed_us(const Costs& costs) noexcept {
  return costs.staged_fixed_us > 0 ? costs.staged_fixed_us
                                   : 2 * costs.copy_start_us + costs.event_us;
}

RouteCost cost_of(const Node& node, const RatedRoute& rated, const RingLimits& rings) {
  RouteCost cost;
  cost.staged = rated.route.staged();
  cost.bytes_per_us = rated.gbps * kBytesPerGbpsUs;
  const Costs& costs = node.costs;
  if (!cost.staged) {
    cost.fixed_us = costs.copy_start_us;
    return cost;
  }
  cost.fixed_us = staged_fixed_us(costs);
  cost.gap_us = costs.staged_gap_us > 0 ? costs.staged_gap_us : costs.copy_gap_us;
  // Three slots at least: one being written, one being read, one on its way. Host links share themselves
  // better among smaller chunks (4 MiB 153 GB/s, 8 MiB 147 GB/s into one of 4 x H200), and with four
  // slots one wait frees two.
  cost.max_chunk_bytes = rings.of(rated.route) / 3;
  for (const int leg : rated.route.legs) {
    const Link& link = node.links[static_cast<std::size_t>(leg)];
    cost.fill_bytes_per_us = std::max(cost.fill_bytes_per_us, link.gbps * kBytesPerGbpsUs);
    if (link.type == LinkType::pcie && rated.route.kind == RouteKind::via_host)
      cost.bytes_per_us = rated.gbps * kBytesPerGbpsUs * kHostCaution;
    if (link.from.is_host() || link.to.is_host())
      cost.max_chunk_bytes = std::min(rings.of(rated.route) / 4, kMostChunkOverHostLink);
  }
  cost.max_chunk_bytes = cost.max_chunk_bytes / kPage * kPage;
  return cost;
}

}  // namespace polypath
