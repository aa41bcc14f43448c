// Several equal nodes: inside each slices to their owners, between equal ranks of the nodes the
// allreduce of an existing engine, inside all-gather; chunk by chunk, so that the three overlap. A
// prediction: such a machine was not measured.
#pragma once

#include "collectives/plan/collective_plan.hpp"

namespace polypath {

struct NodePipeline {
  Algorithm algorithm = Algorithm::flat;  ///< inside the nodes
  std::optional<KernelPlan> kernel;
  std::vector<CollectiveStage> stages;
  int chunks = 1;
  std::uint64_t chunk_bytes = 0;  ///< of the message
  double us = 0;
};

/// Limit of a chunk: what a rank has of it between the nodes.
inline constexpr std::uint64_t kMaxNodeSlice = std::uint64_t{4} << 20;

/// A rank's slice of each chunk of `bytes` that the ranks of a node have together, up to `most`.
/// As many chunks as are predicted to take the least time. The same on all nodes, also on unequal
/// ones; a multiple of 4096.
std::uint64_t node_slice_bytes(std::uint64_t bytes, int ranks, std::uint64_t most = kMaxNodeSlice);

/// The ranks of a node share its network; between n nodes 2 (n - 1) / n of the message leave each.
NodePipeline plan_node_pipeline(const Node& node, const CollectiveRequest& request,
                                const CollectiveOptions& options, bool kernels);

}  // namespace polypath
