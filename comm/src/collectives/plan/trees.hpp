// Trees on the capacity graph, and how much of them fits at once: the best rate that any schedule
// of a collective over such trees can reach, known before anything runs.
//
// For a slice of the message with its owner, an in-tree reduces it to the owner and an out-tree
// broadcasts it from there. Every rank but the owner has a parent: a rank, over the link between
// their GPUs, or a host memory. Stars (the owner is the parent of all) are the flat two stages,
// trees of depth two the three stages. Host memory cannot add: in an in-tree it hands the owner
// each rank's data as it is; of an out-tree it takes the owner's result once and serves all its
// children, so it carries more of an all-gather than of anything else.
#pragma once

#include <span>
#include <vector>

#include "collectives/plan/request.hpp"

namespace polypath {

enum class TreeKind : std::uint8_t { in, out };

struct CollectiveTree {
  TreeKind kind = TreeKind::in;
  int owner = 0;  ///< rank
  /// For each rank the memory that its data goes to (in) or comes from (out); for the owner itself.
  std::vector<MemoryId> parents;
  /// How often a unit of the slice crosses each link: (index into Node::links, times).
  std::vector<std::pair<int, int>> loads;

  /// Whether the owner is the parent of all ranks.
  [[nodiscard]] bool star(std::span<const int> gpus) const noexcept;

  friend bool operator==(const CollectiveTree&, const CollectiveTree&) = default;
};

/// Which trees count.
struct TreeFilter {
  bool stars_only = false;
  bool host = true;  ///< those through host memory
  /// The usable part of the rate of an NVSwitch's links and ports (Costs::switch_share for
  /// kernels).
  double switch_share = 1;
};

/// In-trees and out-trees of every owner that the operation uses (all ranks, or the root). Up to
/// four ranks all of them; beyond that those in which each island's ranks share one way (directly,
/// by one of their own, by a host memory), or all pass one rank, or islands follow each other in a
/// chain. Ties are broken by the order of the list. Links of type bounce count as links here: the
/// driver's copies may take them.
std::vector<CollectiveTree> find_trees(const Node& node, const CollectiveRequest& request,
                                       const TreeFilter& filter);

struct TreePacking {
  /// GB/s of the message (CollectiveRequest::bytes over time); 0 when a rank cannot be reached.
  double gbps = 0;
  /// GB/s that each tree carries, in their order.
  std::vector<double> tree_gbps;
};

/// The largest packing: no link and no port carries more than its capacity, and every slice is
/// reduced (in) as fast as it is broadcast (out).
TreePacking pack_trees(const Node& node, const CollectiveRequest& request,
                       const std::vector<CollectiveTree>& trees, const TreeFilter& filter);

/// GB/s of the message at best, over all schedules: pack_trees over find_trees; for all_to_all
/// the maximum flow of all pairs over their routes.
double collective_limit_gbps(const Node& node, const CollectiveRequest& request,
                             const TreeFilter& filter);

}  // namespace polypath
