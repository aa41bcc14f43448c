#include "exec/copy_graph.hpp"

#include <array>
#include <cstddef>

#include "driver/check.hpp"

namespace polypath {
namespace {

void set_source(CUDA_MEMCPY3D& copy, MemoryId memory, CUdeviceptr address) {
  if (memory.is_gpu()) {
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = address;
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = reinterpret_cast<const void*>(address);
  }
}

void set_destination(CUDA_MEMCPY3D& copy, MemoryId memory, CUdeviceptr address) {
  if (memory.is_gpu()) {
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = address;
  } else {
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = reinterpret_cast<void*>(address);
  }
}

}  // namespace

bool has_graphs(const CudaDriver& driver) noexcept {
  return driver.graph_create != nullptr && driver.graph_destroy != nullptr &&
         driver.graph_add_memcpy_node != nullptr && driver.graph_instantiate != nullptr &&
         driver.graph_launch != nullptr && driver.graph_exec_destroy != nullptr &&
         driver.graph_exec_memcpy_node_set_params != nullptr;
}

CopyGraph::CopyGraph(const CudaDriver& driver, const CopyDag& dag,
                     std::span<const NodePlace> places)
    : driver_(driver), dag_(dag), places_(places.begin(), places.end()) {
  try {
    build();
  } catch (...) {
    destroy();
    throw;
  }
}

CopyGraph::~CopyGraph() { destroy(); }

void CopyGraph::destroy() noexcept {
  if (executable_ != nullptr) POLYPATH_WARN(driver_, graph_exec_destroy(executable_));
  if (graph_ != nullptr) POLYPATH_WARN(driver_, graph_destroy(graph_));
}

CUDA_MEMCPY3D CopyGraph::parameters(const DagCopy& copy, const NodePlace& place) const {
  const Route& route = dag_.routes[static_cast<std::size_t>(copy.route)];
  CUDA_MEMCPY3D parameters{};
  parameters.WidthInBytes = copy.bytes;
  parameters.Height = 1;
  parameters.Depth = 1;
  set_source(parameters, copy.leg == 0 ? dag_.request.src : route.via, place.src);
  set_destination(parameters, copy.leg == 0 && route.staged() ? route.via : dag_.request.dst,
                  place.dst);
  return parameters;
}

void CopyGraph::build() {
  POLYPATH_CHECK(driver_, graph_create(&graph_, 0));
  nodes_.reserve(dag_.copies.size());
  for (std::size_t i = 0; i < dag_.copies.size(); ++i) {
    const DagCopy& copy = dag_.copies[i];
    std::array<CUgraphNode, 2> after{};
    std::size_t count = 0;
    for (const int before : copy.after)
      if (before != kNoCopy) after[count++] = nodes_[static_cast<std::size_t>(before)];
    const CUDA_MEMCPY3D what = parameters(copy, places_[i]);
    CUgraphNode node = nullptr;
    POLYPATH_CHECK(driver_, graph_add_memcpy_node(&node, graph_, after.data(), count, &what,
                                                  places_[i].context));
    nodes_.push_back(node);
  }
  POLYPATH_CHECK(driver_, graph_instantiate(&executable_, graph_, 0));
}

std::size_t CopyGraph::patch(std::span<const NodePlace> places, bool all) {
  std::size_t patched = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!all && places_[i] == places[i]) continue;
    const CUDA_MEMCPY3D what = parameters(dag_.copies[i], places[i]);
    POLYPATH_CHECK(driver_, graph_exec_memcpy_node_set_params(executable_, nodes_[i], &what,
                                                              places[i].context));
    places_[i] = places[i];
    ++patched;
  }
  return patched;
}

void CopyGraph::launch(CUstream stream) {
  POLYPATH_CHECK(driver_, graph_launch(executable_, stream));
}

}  // namespace polypath
