#include "plan/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/units.hpp"

namespace polypath {
namespace {

/// Host links are shared with the machine's other work, and a share that is too large costs
/// more than one that is too small gains: at 512 MiB on 4 x H200 with 10, 12, 14 % by the host 437,
/// 396 and 346 GB/s. With 0.95 the host's share still ended last there, by 1 to 2 % of the time.
constexpr double kHostCaution = 0.93;

constexpr std::uint64_t kMaxChunkOverHostLink = 4 * kMiB;
constexpr std::uint64_t kPage = 4 * kKiB;

}  // namespace

double RouteCost::chunk_bytes(double bytes, const ChunkLimits& limits) const noexcept {
  const auto high = static_cast<double>(max_chunk_bytes);
  const auto low = std::min(high, static_cast<double>(limits.min_chunk_bytes));
  double chunk =
      std::max(std::sqrt(std::max(0.0, bytes) * gap_us * fill_bytes_per_us), issued_in_time(bytes));
  if (limits.chunk_bytes != 0) chunk = static_cast<double>(limits.chunk_bytes);
  if (limits.chunks != 0) chunk = bytes / limits.chunks;
  chunk = limits.chunk_bytes != 0 ? std::min(chunk, high) : std::clamp(chunk, low, high);
  return std::max(1.0, std::min(chunk, bytes));
}

double RouteCost::issued_in_time(double bytes) const noexcept {
  const double more_us = round_us - gap_us;
  if (more_us <= 0 || bytes <= 0) return 0;
  // Links and CPU end together for the number of chunks c with
  // bytes / rate + gap * c = round * (c - 1) + bytes / rate / c.
  const double moving_us = bytes / bytes_per_us;
  const double half = (round_us + moving_us) / 2;
  const double together = bytes * more_us / (half + std::sqrt(half * half - more_us * moving_us));
  // With still smaller ones the last arrives sooner, as long as that outweighs their issue.
  const double last = std::sqrt(round_us * bytes / (1 / bytes_per_us + 1 / fill_bytes_per_us));
  return std::min(together, last);
}

RouteCost::Line RouteCost::line(double bytes, double chunk) const noexcept {
  const double rate = 1 / bytes_per_us;
  if (!staged) return {fixed_us + halts_us, rate};
  if (runs_on) return {halts_us, rate + gap_us / chunk};
  const double filled_us = fixed_us + chunk / fill_bytes_per_us;
  const Line links{filled_us, rate + gap_us / chunk};
  const Line halted{filled_us + halts_us, 1 / full_bytes_per_us + gap_us / chunk};
  const Line issue{filled_us + chunk * rate - round_us, round_us / chunk};
  const auto at = [&](const Line& line) { return line.offset_us + line.us_a_byte * bytes; };
  return std::ranges::max({links, halted, issue}, {}, at);
}

double RouteCost::time_us(double bytes, double chunk) const noexcept {
  const auto [offset_us, us_a_byte] = line(bytes, chunk);
  return offset_us + us_a_byte * bytes;
}

double staged_fixed_us(const Costs& costs) noexcept {
  return costs.staged_fixed_us > 0 ? costs.staged_fixed_us
                                   : 2 * costs.copy_start_us + 3 * costs.event_us;
}

RouteCost cost_of(const Node& node, const RatedRoute& rated, const RingLimits& rings) {
  RouteCost cost;
  cost.staged = rated.route.staged();
  cost.bytes_per_us = cost.full_bytes_per_us = rated.gbps * kBytesPerGbpsUs;
  const Costs& costs = node.costs;
  if (!cost.staged) {
    cost.fixed_us = costs.copy_start_us;
    return cost;
  }
  cost.fixed_us = staged_fixed_us(costs);
  cost.gap_us = costs.staged_gap_us > 0 ? costs.staged_gap_us : costs.copy_gap_us;
  // Three slots at least: one being written, one being read, one on its way. Host links share
  // themselves better among smaller chunks (4 MiB 153 GB/s, 8 MiB 147 GB/s into one of 4 x H200),
  // and with four slots one wait frees two.
  cost.max_chunk_bytes = rings.bytes_of(rated.route) / 3;
  for (const int leg : rated.route.legs) {
    const Link& link = node.links[static_cast<std::size_t>(leg)];
    cost.fill_bytes_per_us = std::max(cost.fill_bytes_per_us, link.gbps * kBytesPerGbpsUs);
    if (link.type == LinkType::pcie && rated.route.kind == RouteKind::via_host)
      cost.bytes_per_us = rated.gbps * kBytesPerGbpsUs * kHostCaution;
    if (link.from.is_host() || link.to.is_host())
      cost.max_chunk_bytes = std::min(rings.bytes_of(rated.route) / 4, kMaxChunkOverHostLink);
  }
  cost.max_chunk_bytes = cost.max_chunk_bytes / kPage * kPage;
  return cost;
}

}  // namespace polypath
