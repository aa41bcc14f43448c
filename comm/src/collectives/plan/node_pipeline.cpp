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
constexpr std::uint64_t kMinNodeChunk = 256 * kKiB;
constexpr std::uint64_t kMinNodeSlice = 64 * kKiB;
constexpr std::uint64_t kSliceGranule = 4 * kKiB;

/// What a chunk costs beyond its bytes: its kernels and two exchanges. Measured with NCCL between
/// two nodes' parts of a node: 46 us an exchange
/// (bench/results/2026-11-23-2xh200-collectives/nodes.nccl.1M.log).
constexpr double kChunkUs = 2 * 46;
/// The rate of what does not overlap in one chunk: the stages inside the nodes, and copies to and
/// from the network. As the network of the same measurement, 45 GB/s.
constexpr double kSerialGbps = 45;
constexpr std::uint64_t kMaxOverlapped = 8;  ///< that overlapping gains anything from

/// With n chunks the first one's stages overlap with nothing, and each costs kChunkUs.
std::uint64_t best_chunks(double slice_bytes) {
  const double serial_us = slice_bytes / (kSerialGbps * kBytesPerGbpsUs);
  const auto us = [&](std::uint64_t chunks) {
    return static_cast<double>(chunks) * kChunkUs + serial_us / static_cast<double>(chunks);
  };
  std::uint64_t best = 1;
  while (best < kMaxOverlapped && us(best + 1) < us(best)) ++best;
  return best;
}

}  // namespace

std::uint64_t node_slice_bytes(std::uint64_t bytes, int ranks, std::uint64_t most) {
  const auto count = static_cast<std::uint64_t>(ranks);
  const std::uint64_t whole = (bytes + count - 1) / count;
  const std::uint64_t chunks =
      std::max(best_chunks(static_cast<double>(whole)), (whole + most - 1) / most);
  const std::uint64_t even = (whole + chunks - 1) / chunks;
  const std::uint64_t slice = (even + kSliceGranule - 1) / kSliceGranule * kSliceGranule;
  return std::clamp(slice, std::min(kMinNodeSlice, most), most);
}

NodePipeline plan_node_pipeline(const Node& node, const CollectiveRequest& request,
                                const CollectiveOptions& options, bool kernels) {
  NodePipeline pipeline;
  CollectiveRequest inside = request;
  inside.nodes = 1;
  double inside_us = 0;  // of both stages inside; they share the links
  if (request.ranks() == 1) {
    pipeline.algorithm = Algorithm::none;
  } else if (kernels) {
    const KernelCost cost = flat_cost(node, inside, options.limits);
    pipeline.kernel = cost.kernel;
    pipeline.stages = cost.stages;
    inside_us = cost.us - node.costs.kernel_start_us;
  } else {
    pipeline.algorithm = Algorithm::host_trees;
    const std::uint64_t slice = request.bytes() / static_cast<std::uint64_t>(request.ranks());
    const auto schedule =
        flat_schedule(node, inside, std::max(kMinNodeChunk, slice / 16), /*by_host=*/true);
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

  pipeline.chunk_bytes = node_slice_bytes(request.bytes(), request.ranks()) *
                         static_cast<std::uint64_t>(request.ranks());
  pipeline.chunks =
      static_cast<int>((request.bytes() + pipeline.chunk_bytes - 1) / pipeline.chunk_bytes);
  const double within =
      request.ranks() == 1 ? 0 : inside_us / pipeline.chunks + 2 * node.costs.kernel_start_us;
  const double between = network_us / pipeline.chunks + kEngineUs;
  pipeline.us = within + between + (pipeline.chunks - 1) * std::max(within, between);
  return pipeline;
}

}  // namespace polypath
