#include "tune/staged_graph.hpp"

#include <array>
#include <cstddef>
#include <utility>

#include "base/error.hpp"
#include "driver/check.hpp"
#include "exec/memcpy_node.hpp"

namespace polypath {
namespace {

CUDA_MEMCPY3D parameters(const StagedCopy& copy) {
  return memcpy_node(copy.to, copy.dst, copy.from, copy.src, copy.bytes);
}

}  // namespace

StagedGraph::StagedGraph(const CudaDriver& driver, const StagedTransfer& transfer)
    : driver_(driver), transfer_(transfer) {
  if (!has_memcpy_graphs(driver)) throw NotSupported("this CUDA driver has no graphs of copies");
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
