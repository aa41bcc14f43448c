// Graphs before they run: their nodes, and what may be made of them.
#include <algorithm>

#include "driver.hpp"
#include "failure.hpp"

namespace polypath::sim {

CUgraph Driver::add_graph(Graph graph) {
  std::vector<GraphNode> nodes = std::exchange(graph.nodes, {});
  const CUgraph handle = graphs.add(std::make_unique<Graph>(std::move(graph)));
  for (GraphNode& wanted : nodes) add_graph_node(handle, std::move(wanted));
  return handle;
}

void Driver::destroy_graph(CUgraph handle) {
  for (const GraphNode& each : graphs.get(handle, CUDA_ERROR_INVALID_VALUE).nodes)
    graph_nodes.remove(each.handle);
  graphs.remove(handle);
}

CUgraphNode Driver::add_graph_node(CUgraph handle, GraphNode wanted) {
  Graph& graph = graphs.get(handle, CUDA_ERROR_INVALID_VALUE);
  const auto index = static_cast<int>(graph.nodes.size());
  wanted.handle = graph_nodes.add(std::make_unique<GraphNodeId>(GraphNodeId{handle, index}));
  graph.nodes.push_back(std::move(wanted));
  return graph.nodes.back().handle;
}

CUgraphExec Driver::instantiate(CUgraph handle) {
  auto exec = std::make_unique<GraphExec>();
  exec->graph = handle;
  for (const GraphNode& each : graphs.get(handle, CUDA_ERROR_INVALID_VALUE).nodes) {
    if (!each.copy) fail_not_supported("instantiating a captured graph");
    require_placed(*each.copy);
    exec->nodes.push_back({each.after, *each.copy});
  }
  return graph_execs.add(std::move(exec));
}

void Driver::require_placed(const GraphCopy& copy) {
  const Context& context = contexts.get(copy.context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  const auto placement = [&](std::uintptr_t address) {
    return find_operand(memory, address, copy.bytes, host_near(context)).placement();
  };
  require(placement(copy.dst) == copy.dst_placement && placement(copy.src) == copy.src_placement,
          CUDA_ERROR_INVALID_VALUE);
}

void Driver::destroy_graph_execs(CUcontext context) {
  graph_execs.remove_if([context](const GraphExec& exec) {
    return std::ranges::any_of(exec.nodes, [context](const GraphExec::Node& each) {
      return each.copy.context == context;
    });
  });
}

void Driver::note_if_in_flight(const GraphExec& exec) {
  catch_up();
  if (exec.is_in_flight()) ++counters.graphs_disturbed;
}

}  // namespace polypath::sim
