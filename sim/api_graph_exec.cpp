// Instantiated graphs: launches, and new parameters for their nodes.
#include "call.hpp"
#include "graph_copy.hpp"

using namespace polypath::sim;

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return call([&](Driver& driver) {
    driver.current_context();
    // Taken for a call that allocates.
    driver.require_capture_allows();
    CUgraphExec& result = out(exec);
    if (flags != 0) fail_not_supported("cuGraphInstantiateWithFlags with flags");
    result = driver.instantiate(graph);
    const auto nodes = static_cast<double>(driver.graph_execs.get(result).nodes.size());
    const polypath::Costs& costs = driver.node.costs;
    driver.spend(costs.graph_instantiate_us + nodes * costs.graph_instantiate_node_us);
  });
}

// A launch under way goes on to its end.
CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return call([&](Driver& driver) {
    driver.note_if_in_flight(driver.graph_execs.get(handle, CUDA_ERROR_INVALID_VALUE));
    driver.graph_execs.remove(handle);
  });
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return call([&](Driver& driver) { driver.launch(exec, stream); });
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                        const CUDA_MEMCPY3D* parameters, CUcontext context) {
  return call([&](Driver& driver) {
    GraphExec& exec = driver.graph_execs.get(handle, CUDA_ERROR_INVALID_VALUE);
    const GraphNodeId& id = driver.graph_nodes.get(node, CUDA_ERROR_INVALID_VALUE);
    const auto index = static_cast<std::size_t>(id.index);
    // A node that was added after the instantiation is no part of it.
    require(id.graph == exec.graph && index < exec.nodes.size(), CUDA_ERROR_INVALID_VALUE);
    const GraphCopy wanted = read_graph_copy(driver, parameters, context);
    GraphCopy& copy = exec.nodes[index].copy;
    require(wanted.context == copy.context && wanted.dst_placement == copy.dst_placement &&
                wanted.src_placement == copy.src_placement,
            CUDA_ERROR_INVALID_VALUE);
    driver.note_if_in_flight(exec);
    copy = wanted;
    driver.spend(driver.node.costs.graph_set_node_us);
  });
}
