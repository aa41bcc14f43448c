// CUDA graphs as they are put together: nodes with their dependencies.
//
// Graphs owns all graphs and the handles of their nodes. It knows nothing of what nodes do. All of
// it is guarded by the driver's lock. A handle that is none, or no longer, is Failure
// INVALID_VALUE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "cuda_api.hpp"
#include "handle_table.hpp"
#include "kernel_call.hpp"
#include "memory.hpp"

namespace polypath::sim {

/// The copy that a node makes. Its memory is looked up by address at each launch, and has to be
/// placed as it was when the node was added.
struct GraphCopy {
  std::uintptr_t dst = 0;
  std::uintptr_t src = 0;
  std::size_t bytes = 0;
  CUcontext context = nullptr;  ///< that it runs in
  Placement dst_placement;
  Placement src_placement;
};

/// A record of an event, or a wait for its latest record at the time of the launch.
struct GraphEvent {
  CUevent event = nullptr;
  CUcontext context = nullptr;  ///< the event's
  bool records = false;
};

/// What a node does; nothing known of what is captured and cannot be instantiated.
using GraphWork = std::variant<std::monostate, GraphCopy, KernelCall, GraphEvent>;

struct GraphNode {
  CUgraphNode handle = nullptr;
  std::vector<int> after;  ///< indices of the nodes that it depends on, in the order given
  GraphWork work;
  bool is_captured = false;  ///< not added by hand
};

struct Graph {
  std::vector<GraphNode> nodes;
};

/// What a node's handle stands for.
struct GraphNodeId {
  CUgraph graph = nullptr;
  int index = 0;
};

/// The nodes' indices: each node after its dependencies, otherwise in the order of their addition.
/// Failure INVALID_VALUE for a cycle.
std::vector<int> topological_order(const std::vector<GraphNode>& nodes);

class Graphs {
 public:
  CUgraph create();
  void destroy(CUgraph handle);
  /// The result is valid until a function is called that is not const.
  const Graph& get(CUgraph handle) const;
  [[nodiscard]] std::size_t live() const noexcept { return graphs_.live(); }

  /// Adds a node at the end, and fills in its handle, which is returned.
  CUgraphNode add_node(CUgraph handle, GraphNode node);
  /// The node's graph, and its place there.
  [[nodiscard]] GraphNodeId find_node(CUgraphNode node) const;
  /// The places of these nodes in the graph. Failure INVALID_VALUE for nodes of another graph, and
  /// for doubles.
  [[nodiscard]] std::vector<int> find_nodes(CUgraph handle, const CUgraphNode* nodes,
                                            std::size_t count) const;
  /// Makes node `to` depend on node `from`, or no longer. Failure INVALID_VALUE when it does
  /// already, or does not, and when it would come before itself.
  void change_dependency(CUgraph handle, CUgraphNode from, CUgraphNode to, bool depends);

 private:
  HandleTable<CUgraph, Graph, 0x51A0> graphs_;
  HandleTable<CUgraphNode, GraphNodeId, 0x51A1> nodes_;
};

}  // namespace polypath::sim
