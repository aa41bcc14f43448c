#include "collectives/plan/node_pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.hpp"
#include "collectives/plan/kernel_cost.hpp"
#include "collectives/plan/schedule_time.hpp"
#include "collectives/plan/schedules.hpp"

namespace polypath {
namespace {

/// What one call of an engine between nodes takes at least: assumed as what NCCL takes for 64 KiB
/// between four GPUs of one node.
constexpr double kEngineUs = 11.2;
constexpr std::uint64_t kLeastNodeChunk = 256 * kKiB;
constexpr int kMostNodeChunks = 256;

}  // namespace

NodePipeline plan_node_pipeline(const Node& node, const CollectiveRequest& request,
                                const CollectiveOptions& options, bool kernels) {
  NodePipeline pipeline;
  CollectiveRequest inside = request;
  inside.nodes = 1;
  double inside_us = 0;  // of both stages inside; they share the links
  if (request.ranks() == 1) {
    pipeline.algorithm = Algorithm::none;
  } else if (kernels) {
    const KernelCost cost = flat_cost(node, inside, options.max_blocks);
    pipeline.kernel = cost.kernel;
    pipeline.stages = cost.stages;
    inside_us = cost.us - node.costs.kernel_start_us;
  } else {
    pipeline.algorithm = Algorithm::host_trees;
    const std::uint64_t slice = request.bytes() / static_cast<std::uint64_t>(request.ranks());
    const auto schedule =
        flat_schedule(node, inside, std::max(kLeastNodeChunk, slice / 16), /*by_host=*/true);
    const ScheduleTime time = schedule_time(node, schedule);
    for (std::size_t i = 0; i < schedule.stages.size(); ++i)
      pipeline.stages.push_back({schedule.stages[i], "", {}, 0, time.stage_us[i]});
    inside_us = time.us;
  }
  const auto nodes = static_cast<double>(request.nodes);
  const double network_us = static_cast<double>(request.bytes()) * 2 * (nodes - 1) / nodes /
                            (request.network_gbps * kBytesPerGbpsUs);
  const std::string moves =
      fmt::format("each rank's slice with its equals on {} nodes, by MPI or NCCL", request.nodes);
  pipeline.stages.insert(
      pipeline.stages.begin() + static_cast<std::ptrdiff_t>(pipeline.stages.size() / 2),
      {"allreduce between nodes", moves, {"network"}, request.network_gbps, network_us});

  for (int chunks = 1; chunks <= kMostNodeChunks; chunks *= 2) {
    const auto count = static_cast<std::uint64_t>(chunks);
    const std::uint64_t bytes = (request.bytes() + count - 1) / count;
    if (chunks > 1 && bytes < kLeastNodeChunk) break;
    const double within =
        request.ranks() == 1 ? 0 : inside_us / chunks + 2 * node.costs.kernel_start_us;
    const double between = network_us / chunks + kEngineUs;
    const double us = within + between + (chunks - 1) * std::max(within, between);
    if (pipeline.us > 0 && us >= pipeline.us) continue;
    pipeline.us = us;
    pipeline.chunks = chunks;
    pipeline.chunk_bytes = bytes;
  }
  return pipeline;
}

}  // namespace polypath
