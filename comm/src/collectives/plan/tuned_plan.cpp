#include "collectives/plan/tuned_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/units.hpp"
#include "collectives/plan/islands.hpp"
#include "collectives/plan/kernel_cost.hpp"

namespace polypath {
namespace {

constexpr int kBlocksToTry[] = {8, 16, 32, 64, 96, 128};
/// Tiles and lags that channels are tried with, by as many blocks as are planned.
constexpr std::uint64_t kTilesToTry[] = {8 * kKiB, 16 * kKiB, 28 * kKiB, 32 * kKiB};
constexpr int kLagsToTry[] = {2, 3, 4};
constexpr double kMaxTimesPlanned = 3;

std::string link_name(const Node& node, int from, int to) {
  const auto index = node.find_link(MemoryId::gpu(from), MemoryId::gpu(to));
  if (!index) return "no link";
  const Link& link = node.links[static_cast<std::size_t>(*index)];
  return link.width > 0 ? fmt::format("{} x{}", to_string(link.type), link.width)
                        : std::string(to_string(link.type));
}

/// `way` of `request`; the cost model's plan where it cannot run so.
CollectivePlan plan_by(const Node& node, const CollectiveRequest& request,
                       const CollectiveOptions& options, const CollectiveVariant& way,
                       const CollectivePlan& planned) {
  CollectiveOptions asked = options;
  asked.algorithm = parse_algorithm(way.algorithm);
  asked.lanes = way.lanes;
  asked.chunk_bytes = way.chunk_bytes;
  if (!runs_by_kernels(*asked.algorithm) && !options.copies) return planned;
  if (*asked.algorithm == Algorithm::lines && !lines_hold(request, way.stages)) return planned;
  try {
    CollectivePlan plan = plan_collective(node, request, asked);
    if (runs_by_kernels(*asked.algorithm))
      run_by(node, plan,
             kernel_cost(node, request, *asked.algorithm,
                         {.blocks = way.blocks,
                          .slot_bytes = way.tile_bytes,
                          .stages = way.stages,
                          .lag = way.lag},
                         options.limits));
    return plan;
  } catch (const InvalidArgument&) {
    return planned;
  }
}

/// The candidates of the cost model's plan, with what is taken instead of it first.
std::vector<CollectiveCandidate> candidates_of(const CollectivePlan& plan,
                                               const CollectivePlan& planned,
                                               const TunedCollective& known) {
  std::vector<CollectiveCandidate> all{plan.candidates.front()};
  all.front().us = plan.predicted_us;
  all.front().bus_gbps = plan.bus_gbps;
  for (CollectiveCandidate candidate : planned.candidates) {
    if (candidate.algorithm == plan.algorithm) continue;
    if (candidate.algorithm == planned.algorithm)
      candidate.reason = fmt::format("predicted to end first, but measured {:.2f} times as long",
                                     known.us > 0 ? known.planned_us / known.us : 0);
    all.push_back(std::move(candidate));
  }
  return all;
}

}  // namespace

std::string collective_class(const Node& node, const std::vector<int>& gpus) {
  std::map<std::string, int> links;
  for (std::size_t to = 0; to < gpus.size(); ++to)
    for (std::size_t from = 0; from < to; ++from) ++links[link_name(node, gpus[from], gpus[to])];
  std::string text = fmt::format("{} rank{}", gpus.size(), gpus.size() == 1 ? "" : "s");
  for (const auto& [name, count] : links)
    text += links.size() == 1 ? ", " + name : fmt::format(", {} by {}", count, name);
  const auto islands = find_islands(node, gpus, /*by_socket=*/false);
  if (islands.size() < 2) return text;
  std::vector<std::string> parts;
  for (const auto& island : islands) parts.push_back(fmt::format("{}", fmt::join(island, " ")));
  return text + fmt::format(", islands {}", fmt::join(parts, " | "));
}

namespace {

/// `way`, with what it leaves to the plan as `planned` has it.
CollectiveVariant completed(CollectiveVariant way, const CollectivePlan& planned) {
  if (way.algorithm != to_string(planned.algorithm) || !planned.kernel) return way;
  if (way.tile_bytes == 0) way.tile_bytes = planned.kernel->slot_bytes;
  if (way.lag == 0) way.lag = planned.kernel->lag;
  return way;
}

}  // namespace

CollectiveVariant variant_of(const CollectivePlan& plan) {
  CollectiveVariant way;
  way.algorithm = to_string(plan.algorithm);
  if (plan.kernel) {
    way.stages = plan.kernel->stages;
    way.blocks = plan.kernel->blocks;
    way.tile_bytes = plan.kernel->slot_bytes;
    way.lag = plan.kernel->lag;
  } else {
    if (plan.algorithm == Algorithm::hierarchical) way.lanes = plan.lanes;
    way.chunk_bytes = plan.chunk_bytes;
  }
  return way;
}

CollectivePlan plan_tuned_collective(const Node& node, const CollectiveRequest& request,
                                     const CollectiveOptions& options,
                                     std::span<const TunedCollective> tuned) {
  CollectivePlan planned = plan_collective(node, request, options);
  const bool is_open = !options.algorithm && options.chunk_bytes == 0 && options.lanes == 0;
  if (tuned.empty() || !is_open || planned.algorithm == Algorithm::none || request.nodes > 1)
    return planned;
  const TunedCollective* const known = find_collective(
      tuned, to_string(request.op), collective_class(node, request.gpus), request.bytes());
  if (known == nullptr) return planned;
  // The chunks of mixed go by its part.
  const bool is_mixed =
      planned.algorithm == Algorithm::mixed && known->way.algorithm == to_string(Algorithm::mixed);
  if (is_mixed || variant_of(planned) == completed(known->way, planned)) {
    planned.tuned = *known;
    planned.reason = fmt::format("tuned: as predicted, the fastest of {} ways measured at {} bytes",
                                 known->tried, known->bytes);
    return planned;
  }
  CollectivePlan plan = plan_by(node, request, options, known->way, planned);
  const bool is_taken = plan.algorithm == parse_algorithm(known->way.algorithm) &&
                        variant_of(plan) != variant_of(planned);
  if (!is_taken) return planned;
  plan.candidates = candidates_of(plan, planned, *known);
  plan.tuned = *known;
  plan.reason =
      known->us > 0
          ? fmt::format("tuned: {:.1f} us measured at {} bytes, against {:.1f} us by {}", known->us,
                        known->bytes, known->planned_us, to_string(variant_of(planned)))
          : fmt::format("tuned by hand at {} bytes, instead of {}", known->bytes,
                        to_string(variant_of(planned)));
  return plan;
}

CollectivePlan plan_without_host(const Node& node, const CollectiveRequest& request,
                                 const CollectiveOptions& options,
                                 std::span<const TunedCollective> tuned) {
  CollectiveOptions without = options;
  without.algorithm.reset();
  without.chunk_bytes = 0;
  without.lanes = 0;
  without.host_bytes = 0;
  without.explain = false;
  CollectivePlan plan = plan_tuned_collective(node, request, without, tuned);
  if (plan.rank_order || request.needs_tree()) return plan;
  without.copies = false;
  return plan_tuned_collective(node, request, without, tuned);
}

std::vector<CollectiveVariant> candidate_variants(const Node& node,
                                                  const CollectiveRequest& request,
                                                  const CollectiveOptions& options) {
  const CollectivePlan planned = plan_collective(node, request, options);
  std::vector<CollectiveVariant> ways{variant_of(planned)};
  const auto add = [&](const CollectivePlan& plan) {
    const CollectiveVariant way = variant_of(plan);
    const bool is_new = std::ranges::find(ways, way) == ways.end();
    if (is_new && plan.predicted_us <= kMaxTimesPlanned * planned.predicted_us) ways.push_back(way);
  };
  for (const CollectiveCandidate& candidate : planned.candidates) {
    if (candidate.us <= 0) continue;  // runs only when it is asked for
    CollectiveVariant way;
    way.algorithm = to_string(candidate.algorithm);
    if (runs_by_kernels(candidate.algorithm)) {
      for (way.stages = 1; way.stages <= (request.by_parts() ? 1 : 2); ++way.stages)
        for (const int blocks : kBlocksToTry) {
          way.blocks = blocks;
          add(plan_by(node, request, options, way, planned));
        }
      if (!runs_by_channels(candidate.algorithm)) continue;
      // As many blocks as are planned, then.
      CollectiveOptions asked = options;
      asked.algorithm = candidate.algorithm;
      way = variant_of(plan_collective(node, request, asked));
      for (const std::uint64_t tile : kTilesToTry)
        for (const int lag : kLagsToTry) {
          way.tile_bytes = tile;
          way.lag = lag;
          add(plan_by(node, request, options, way, planned));
        }
      continue;
    }
    const CollectivePlan best = plan_by(node, request, options, way, planned);
    way = variant_of(best);
    if (best.algorithm != candidate.algorithm || way.chunk_bytes < 2) continue;
    for (const std::uint64_t chunk : {way.chunk_bytes / 2, way.chunk_bytes, way.chunk_bytes * 2}) {
      way.chunk_bytes = chunk;
      add(plan_by(node, request, options, way, planned));
    }
  }
  ways.erase(ways.begin());
  return ways;
}

}  // namespace polypath
