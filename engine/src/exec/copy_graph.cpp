#include "exec/copy_graph.hpp"

#include <cstddef>

#include "driver/check.hpp"

namespace polypath {

CopyGraph::CopyGraph(const CudaDriver& driver, const TransferSchedule& schedule,
                     std::span<const NodePlace> places)
    : driver_(driver), schedule_(schedule), places_(places.begin(), places.end()) {
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

void CopyGraph::abandon() noexcept {
  executable_ = nullptr;
  graph_ = nullptr;
}

CUDA_MEMCPY3D CopyGraph::parameters(std::size_t index, const NodePlace& place) const {
  const Step& step = schedule_.steps[index];
  return memcpy_node(memory_of(schedule_, step.to), place.dst, memory_of(schedule_, step.from),
                     place.src, step.bytes);
}

void CopyGraph::build() {
  POLYPATH_CHECK(driver_, graph_create(&graph_, 0));
  nodes_.reserve(schedule_.steps.size());
  std::vector<CUgraphNode> last(static_cast<std::size_t>(schedule_.queues));  // of each queue
  for (std::size_t i = 0; i < schedule_.steps.size(); ++i)
    add(i, last[static_cast<std::size_t>(schedule_.steps[i].queue)]);
  POLYPATH_CHECK(driver_, graph_instantiate(&executable_, graph_, 0));
}

void CopyGraph::add(std::size_t index, CUgraphNode& last) {
  const NodePlace& place = places_[index];
  std::vector<CUgraphNode> after;
  if (last != nullptr) after.push_back(last);
  for (const int before : schedule_.after(schedule_.steps[index]))
    after.push_back(nodes_[static_cast<std::size_t>(before)]);
  const CUDA_MEMCPY3D what = parameters(index, place);
  POLYPATH_CHECK(driver_, graph_add_memcpy_node(&last, graph_, after.data(), after.size(), &what,
                                                place.context));
  nodes_.push_back(last);
}

void CopyGraph::set(std::size_t index, const NodePlace& place) {
  const CUDA_MEMCPY3D what = parameters(index, place);
  POLYPATH_CHECK(
      driver_, graph_exec_memcpy_node_set_params(executable_, nodes_[index], &what, place.context));
}

std::size_t CopyGraph::patch(std::span<const NodePlace> places, bool all) {
  std::size_t patched = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!all && places_[i] == places[i]) continue;
    set(i, places[i]);
    places_[i] = places[i];
    ++patched;
  }
  return patched;
}

void CopyGraph::launch(CUstream stream) {
  POLYPATH_CHECK(driver_, graph_launch(executable_, stream));
}

}  // namespace polypath
