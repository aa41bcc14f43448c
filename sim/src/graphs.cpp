#include "graphs.hpp"

#include <algorithm>
#include <memory>

#include "failure.hpp"

namespace polypath::sim {

CUgraph Graphs::create() { return graphs_.add(std::make_unique<Graph>()); }

void Graphs::destroy(CUgraph handle) {
  for (const GraphNode& each : graphs_.get(handle, CUDA_ERROR_INVALID_VALUE).nodes)
    nodes_.remove(each.handle);
  graphs_.remove(handle);
}

const Graph& Graphs::get(CUgraph handle) const {
  return graphs_.get(handle, CUDA_ERROR_INVALID_VALUE);
}

GraphNodeId Graphs::find_node(CUgraphNode node) const {
  return nodes_.get(node, CUDA_ERROR_INVALID_VALUE);
}

CUgraphNode Graphs::add_node(CUgraph handle, GraphNode node) {
  Graph& graph = graphs_.get(handle, CUDA_ERROR_INVALID_VALUE);
  const auto index = static_cast<int>(graph.nodes.size());
  node.handle = nodes_.add(std::make_unique<GraphNodeId>(GraphNodeId{handle, index}));
  graph.nodes.push_back(std::move(node));
  return graph.nodes.back().handle;
}

std::vector<int> Graphs::find_nodes(CUgraph handle, const CUgraphNode* nodes,
                                    std::size_t count) const {
  graphs_.get(handle, CUDA_ERROR_INVALID_VALUE);
  require(nodes != nullptr || count == 0, CUDA_ERROR_INVALID_VALUE);
  std::vector<int> indices;
  for (std::size_t i = 0; i < count; ++i) {
    const GraphNodeId& id = nodes_.get(nodes[i], CUDA_ERROR_INVALID_VALUE);
    require(id.graph == handle, CUDA_ERROR_INVALID_VALUE);
    require(std::ranges::find(indices, id.index) == indices.end(), CUDA_ERROR_INVALID_VALUE);
    indices.push_back(id.index);
  }
  return indices;
}

std::vector<int> topological_order(const std::vector<GraphNode>& nodes) {
  std::vector<int> order;
  std::vector<bool> is_placed(nodes.size(), false);
  while (order.size() < nodes.size()) {
    const std::size_t before = order.size();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const auto is_there = [&](int node) { return is_placed[static_cast<std::size_t>(node)]; };
      if (is_placed[i] || !std::ranges::all_of(nodes[i].after, is_there)) continue;
      is_placed[i] = true;
      order.push_back(static_cast<int>(i));
    }
    require(order.size() > before, CUDA_ERROR_INVALID_VALUE);  // a cycle
  }
  return order;
}

void Graphs::change_dependency(CUgraph handle, CUgraphNode from, CUgraphNode to, bool depends) {
  const int before = find_nodes(handle, &from, 1).front();
  const int behind = find_nodes(handle, &to, 1).front();
  std::vector<GraphNode>& nodes = graphs_.get(handle).nodes;
  std::vector<int>& after = nodes[static_cast<std::size_t>(behind)].after;
  const auto known = std::ranges::find(after, before);
  require((known == after.end()) == depends, CUDA_ERROR_INVALID_VALUE);
  if (!depends) {
    after.erase(known);
    return;
  }
  after.push_back(before);
  try {
    topological_order(nodes);
  } catch (const Failure&) {
    after.pop_back();
    throw;
  }
}

}  // namespace polypath::sim
