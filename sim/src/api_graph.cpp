// Graphs that a program puts together, and instantiated ones.
#include <algorithm>
#include <bit>

#include "call.hpp"
#include "device_traits.hpp"

namespace polypath::sim {
namespace {

struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
};

std::uintptr_t address_of(const Side& side) {
  switch (side.type) {
    case CU_MEMORYTYPE_HOST: return std::bit_cast<std::uintptr_t>(side.host);
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED: return side.device;
    case CU_MEMORYTYPE_ARRAY: fail_not_supported("a copy node with an array");
  }
  throw Failure{CUDA_ERROR_INVALID_VALUE};
}

/// Managed memory may be named as either.
bool fits(CUmemorytype type, const Allocation& allocation) {
  if (type == CU_MEMORYTYPE_UNIFIED || allocation.kind == Allocation::Kind::managed) return true;
  return allocation.is_on_device() == (type == CU_MEMORYTYPE_DEVICE);
}

void require_one_dimension(const CUDA_MEMCPY3D& params) {
  require(params.WidthInBytes > 0 && params.Height > 0 && params.Depth > 0,
          CUDA_ERROR_INVALID_VALUE);
  require(params.reserved0 == nullptr && params.reserved1 == nullptr, CUDA_ERROR_INVALID_VALUE);
  for (const std::size_t pitch : {params.srcPitch, params.dstPitch})
    require(pitch == 0 || pitch >= params.WidthInBytes, CUDA_ERROR_INVALID_VALUE);
  if (params.Height != 1 || params.Depth != 1)
    fail_not_supported("a copy node of more than one dimension");
  for (const std::size_t offset : {params.srcXInBytes, params.srcY, params.srcZ, params.srcLOD,
                                   params.dstXInBytes, params.dstY, params.dstZ, params.dstLOD})
    if (offset != 0) fail_not_supported("a copy node with an offset");
}

/// The copy of these parameters, with its memory looked up.
///
/// Failure INVALID_CONTEXT when `context` is no live one; INVALID_VALUE when the copy is empty, an
/// address is out of bounds or freed, or memory is not of the type that the parameters
/// name. Failure NOT_SUPPORTED for arrays, more than one dimension, offsets, and pageable memory.
GraphCopy read_graph_copy(Driver& driver, const CUDA_MEMCPY3D* parameters, CUcontext context) {
  const Context& runs_in = driver.contexts().get(context, CUDA_ERROR_INVALID_CONTEXT);
  require(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
  const CUDA_MEMCPY3D& params = *parameters;
  require_one_dimension(params);
  const auto find = [&](const Side& side) {
    const Operand operand = find_operand(driver.memory(), address_of(side), params.WidthInBytes,
                                         host_near(driver.node, runs_in.device));
    if (!operand.allocation) fail_not_supported("pageable memory in a graph");
    require(fits(side.type, *operand.allocation), CUDA_ERROR_INVALID_VALUE);
    return operand;
  };
  const Operand dst = find({params.dstMemoryType, params.dstHost, params.dstDevice});
  const Operand src = find({params.srcMemoryType, params.srcHost, params.srcDevice});
  return {dst.address, src.address, params.WidthInBytes, context, dst.placement(), src.placement()};
}

CUresult change_dependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                             const CUgraphEdgeData* edges, std::size_t count, bool depends) {
  return call([&](Driver& driver) {
    driver.graphs().get(graph);
    require(count == 0 || (from != nullptr && to != nullptr), CUDA_ERROR_INVALID_VALUE);
    if (edges != nullptr) fail_not_supported("edges with data");
    for (std::size_t i = 0; i < count; ++i)
      driver.graphs().change_dependency(graph, from[i], to[i], depends);
  });
}

}  // namespace
}  // namespace polypath::sim

using namespace polypath::sim;

// Graphs that a program puts together: their life, and nodes that copy.

CUresult cuGraphCreate(CUgraph* graph, unsigned int flags) {
  return call([&](Driver& driver) {
    CUgraph& result = out(graph);
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    result = driver.graphs().create();
    driver.devices().spend(driver.node.costs.graph_create_us);
  });
}

// What was instantiated from it stays, but can no longer be given new parameters. One in capture is
// the capture's.
CUresult cuGraphDestroy(CUgraph graph) {
  return call([&](Driver& driver) {
    require(!driver.captures().owns(graph), CUDA_ERROR_ILLEGAL_STATE);
    driver.graphs().destroy(graph);
  });
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMCPY3D* parameters, CUcontext context) {
  return call([&](Driver& driver) {
    CUgraphNode& result = out(node);
    driver.graphs().get(graph);
    GraphNode new_node;
    new_node.after = driver.graphs().find_nodes(graph, dependencies, count);
    new_node.work = read_graph_copy(driver, parameters, context);
    result = driver.graphs().add_node(graph, std::move(new_node));
    driver.devices().spend(driver.node.costs.graph_add_node_us);
  });
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph,
                                   const CUgraphNode* dependencies, size_t count, CUevent event) {
  return call([&](Driver& driver) {
    CUgraphNode& result = out(node);
    GraphNode new_node;
    new_node.after = driver.graphs().find_nodes(graph, dependencies, count);
    new_node.work = GraphEvent{event, driver.events().get(event).context, true};
    result = driver.graphs().add_node(graph, std::move(new_node));
    driver.devices().spend(driver.node.costs.graph_add_node_us);
  });
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edges, size_t count) {
  return change_dependencies(graph, from, to, edges, count, true);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* edges, size_t count) {
  return change_dependencies(graph, from, to, edges, count, false);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return call([&](Driver& driver) {
    const std::vector<GraphNode>& all = driver.graphs().get(graph).nodes;
    std::size_t& room = out(count);
    if (nodes == nullptr) {
      room = all.size();
      return;
    }
    for (std::size_t i = 0; i < room; ++i) nodes[i] = i < all.size() ? all[i].handle : nullptr;
    room = std::min(room, all.size());
  });
}

// Instantiated graphs: launches, and new parameters for their nodes.

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return call([&](Driver& driver) {
    driver.contexts().current();
    // Taken for a call that allocates.
    driver.captures().require_unsafe_calls_allowed();
    CUgraphExec& result = out(exec);
    if (flags != 0) fail_not_supported("cuGraphInstantiateWithFlags with flags");
    result = driver.graph_execs().instantiate(graph);
  });
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return call([&](Driver& driver) { driver.graph_execs().destroy(handle); });
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return call([&](Driver& driver) { driver.graph_execs().launch(exec, stream); });
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                        const CUDA_MEMCPY3D* parameters, CUcontext context) {
  return call([&](Driver& driver) {
    GraphWork& work = driver.graph_execs().work(handle, node);
    const GraphCopy new_copy = read_graph_copy(driver, parameters, context);
    auto* const known = std::get_if<GraphCopy>(&work);
    require(known != nullptr, CUDA_ERROR_INVALID_VALUE);
    GraphCopy& copy = *known;
    require(new_copy.context == copy.context && new_copy.dst_placement == copy.dst_placement &&
                new_copy.src_placement == copy.src_placement,
            CUDA_ERROR_INVALID_VALUE);
    driver.graph_execs().note_change(handle);
    copy = new_copy;
    driver.devices().spend(driver.node.costs.graph_set_node_us);
  });
}
