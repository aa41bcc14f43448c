// Graphs that a program puts together: their life, and nodes that copy.
#include <algorithm>

#include "call.hpp"
#include "graph_copy.hpp"

using namespace polypath::sim;

namespace {

/// The places of these nodes in the graph. Failure INVALID_VALUE for nodes of another, and for doubles.
std::vector<int> find_nodes(const Driver& driver, CUgraph graph, const CUgraphNode* nodes,
                            std::size_t count) {
  require(nodes != nullptr || count == 0, CUDA_ERROR_INVALID_VALUE);
  std::vector<int> found;
  for (std::size_t i = 0; i < count; ++i) {
    const GraphNodeId& id = driver.graph_nodes.get(nodes[i], CUDA_ERROR_INVALID_VALUE);
    require(id.graph == graph, CUDA_ERROR_INVALID_VALUE);
    require(std::find(found.begin(), found.end(), id.index) == found.end(),
            CUDA_ERROR_INVALID_VALUE);
    found.push_back(id.index);
  }
  return found;
}

}  // namespace

CUresult cuGraphCreate(CUgraph* graph, unsigned int flags) {
  return call([&](Driver& driver) {
    CUgraph& result = out(graph);
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    result = driver.add_graph({});
    driver.spend(driver.node.costs.graph_create_us);
  });
}

// What was instantiated from it stays, but can no longer be given new parameters.
CUresult cuGraphDestroy(CUgraph graph) {
  return call([&](Driver& driver) { driver.destroy_graph(graph); });
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMCPY3D* parameters, CUcontext context) {
  return call([&](Driver& driver) {
    CUgraphNode& result = out(node);
    driver.graphs.get(graph, CUDA_ERROR_INVALID_VALUE);
    GraphNode wanted;
    wanted.after = find_nodes(driver, graph, dependencies, count);
    wanted.copy = read_graph_copy(driver, parameters, context);
    result = driver.add_graph_node(graph, std::move(wanted));
    driver.spend(driver.node.costs.graph_add_node_us);
  });
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return call([&](Driver& driver) {
    const std::vector<GraphNode>& all = driver.graphs.get(graph, CUDA_ERROR_INVALID_VALUE).nodes;
    std::size_t& room = out(count);
    if (nodes == nullptr) {
      room = all.size();
      return;
    }
    for (std::size_t i = 0; i < room; ++i) nodes[i] = i < all.size() ? all[i].handle : nullptr;
    room = std::min(room, all.size());
  });
}
