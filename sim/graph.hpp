// CUDA graphs: nodes with their dependencies, as they were put together, and as they were instantiated.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cuda_api.hpp"
#include "operand.hpp"
#include "operation.hpp"

namespace polypath::sim {

/// The copy that a node makes. Its memory is looked up by address at each launch, and has to be placed
/// as it was when the node was added.
struct GraphCopy {
  std::uintptr_t dst = 0;
  std::uintptr_t src = 0;
  std::size_t bytes = 0;
  CUcontext context = nullptr;  ///< that it runs in
  Placement dst_placement;
  Placement src_placement;
};

struct GraphNode {
  CUgraphNode handle = nullptr;
  std::vector<int> after;         ///< indices of the nodes that it depends on, in the order given
  std::optional<GraphCopy> copy;  ///< none: captured, which cannot be instantiated
};

struct Graph {
  std::vector<GraphNode> nodes;
};

/// What a node's handle stands for.
struct GraphNodeId {
  CUgraph graph = nullptr;
  int index = 0;
};

/// An instantiated graph: a copy of the graph as it was then.
struct GraphExec {
  struct Node {
    std::vector<int> after;
    GraphCopy copy;
  };
  CUgraph graph = nullptr;  ///< that it was made from; it may be gone
  std::vector<Node> nodes;
  OperationPtr last;              ///< end of its most recent launch; null: never launched
  std::uint64_t last_stream = 0;  ///< id of the stream of that launch

  [[nodiscard]] bool is_in_flight() const noexcept { return last && !last->done; }
};

}  // namespace polypath::sim
