#include "tune/staged_graph.hpp"

#include <array>
#include <cstddef>
#include <utility>

#include "base/error.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

void require_graphs(const CudaDriver& driver) {
  if (driver.graph_create == nullptr || driver.graph_add_memcpy_node == nullptr ||
      driver.graph_instantiate == nullptr || driver.graph_launch == nullptr ||
      driver.graph_exec_memcpy_node_set_params == nullptr || driver.graph_exec_destroy == nullptr ||
      driver.graph_destroy == nullptr)
    throw NotSupported("this CUDA driver has no graphs of copies");
}

/// A copy of one dimension: only such a node can be given other addresses later.
CUDA_MEMCPY3D parameters(const StagedCopy& copy) {
  CUDA_MEMCPY3D what{};
  what.WidthInBytes = copy.bytes;
  what.Height = 1;
  what.Depth = 1;
  if (copy.from.is_gpu()) {
    what.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    what.srcDevice = copy.src;
  } else {
    what.srcMemoryType = CU_MEMORYTYPE_HOST;
    what.srcHost = reinterpret_cast<const void*>(copy.src);
  }
  if (copy.to.is_gpu()) {
    what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    what.dstDevice = copy.dst;
  } else {
    what.dstMemoryType = CU_MEMORYTYPE_HOST;
    what.dstHost = reinterpret_cast<void*>(copy.dst);
  }
  return what;
}

}  // namespace

StagedGraph::StagedGraph(const CudaDriver& driver, const StagedTransfer& transfer)
    : driver_(driver), transfer_(transfer) {
  require_graphs(driver);
  nodes_.reserve(2 * transfer.chunks());
  POLYPATH_CHECK(driver_, graph_create(&graph_, 0));
}

StagedGraph::~StagedGraph() {
  if (executable_ != nullptr && launched_on_ != nullptr)
    POLYPATH_WARN(driver_, stream_synchronize(launched_on_));
  if (executable_ != nullptr) POLYPATH_WARN(driver_, graph_exec_destroy(executable_));
  if (graph_ != nullptr) POLYPATH_WARN(driver_, graph_destroy(graph_));
}

void StagedGraph::construct(const StagedAddresses& at) {
  for (std::size_t chunk = 0; chunk < transfer_.chunks(); ++chunk) {
    for (const int leg : {0, 1}) {
      std::array<CUgraphNode, 2> after{};
      std::size_t count = 0;
      if (chunk > 0) after[count++] = nodes_[nodes_.size() - 2];
      if (leg == 1) after[count++] = nodes_.back();
      const StagedCopy copy = transfer_.copy(chunk, leg, at);
      const CUDA_MEMCPY3D what = parameters(copy);
      CUgraphNode node = nullptr;
      POLYPATH_CHECK(
          driver_, graph_add_memcpy_node(&node, graph_, after.data(), count, &what, copy.context));
      nodes_.push_back(node);
    }
  }
}

void StagedGraph::instantiate() {
  POLYPATH_CHECK(driver_, graph_instantiate(&executable_, graph_, 0));
}

void StagedGraph::launch(CUstream stream) {
  launched_on_ = stream;
  POLYPATH_CHECK(driver_, graph_launch(executable_, stream));
}

void StagedGraph::patch(const StagedAddresses& at) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const StagedCopy copy = transfer_.copy(i / 2, static_cast<int>(i % 2), at);
    const CUDA_MEMCPY3D what = parameters(copy);
    POLYPATH_CHECK(driver_,
                   graph_exec_memcpy_node_set_params(executable_, nodes_[i], &what, copy.context));
  }
}

void StagedGraph::destroy() {
  const CUgraphExec executable = std::exchange(executable_, nullptr);
  POLYPATH_CHECK(driver_, graph_exec_destroy(executable));
  const CUgraph graph = std::exchange(graph_, nullptr);
  POLYPATH_CHECK(driver_, graph_destroy(graph));
}

}  // namespace polypath
