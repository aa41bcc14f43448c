#include "graph_execs.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "device_traits.hpp"
#include "failure.hpp"

namespace polypath::sim {

CUgraphExec GraphExecs::instantiate(CUgraph handle) {
  auto exec = std::make_unique<GraphExec>();
  exec->graph = handle;
  const std::vector<GraphNode>& nodes = graphs_.get(handle).nodes;
  exec->places.resize(nodes.size());
  for (const int index : topological_order(nodes)) {
    const GraphNode& each = nodes[static_cast<std::size_t>(index)];
    if (std::holds_alternative<std::monostate>(each.work))
      fail_not_supported(
          "instantiating a graph with captured fills, or copies of rows or of pageable memory");
    if (const auto* const copy = std::get_if<GraphCopy>(&each.work)) require_placed(*copy);
    exec->places[static_cast<std::size_t>(index)] = exec->nodes.size();
    exec->nodes.push_back({{}, each.work});
    for (const int before : each.after)
      exec->nodes.back().after.push_back(
          static_cast<int>(exec->places[static_cast<std::size_t>(before)]));
  }
  const auto node_count = static_cast<double>(exec->nodes.size());
  const CUgraphExec added = table_.add(std::move(exec));
  devices_.spend(node_.costs.graph_instantiate_us +
                 node_count * node_.costs.graph_instantiate_node_us);
  return added;
}

void GraphExecs::destroy(CUgraphExec handle) {
  note_change(handle);
  table_.remove(handle);
}

void GraphExecs::require_placed(const GraphCopy& copy) const {
  const Context& context = contexts_.get(copy.context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  const auto placement = [&](std::uintptr_t address) {
    return find_operand(memory_, address, copy.bytes, host_near(node_, context.device)).placement();
  };
  require(placement(copy.dst) == copy.dst_placement && placement(copy.src) == copy.src_placement,
          CUDA_ERROR_INVALID_VALUE);
}

void GraphExecs::destroy_all(CUcontext context) {
  table_.remove_if([context](const GraphExec& exec) {
    return std::ranges::any_of(
        exec.nodes, [context](const GraphExec::Node& each) { return each.context() == context; });
  });
}

GraphExec& GraphExecs::get(CUgraphExec handle) const {
  return table_.get(handle, CUDA_ERROR_INVALID_VALUE);
}

GraphWork& GraphExecs::work(CUgraphExec handle, CUgraphNode node) {
  GraphExec& exec = get(handle);
  const GraphNodeId id = graphs_.find_node(node);
  const auto index = static_cast<std::size_t>(id.index);
  require(id.graph == exec.graph && index < exec.places.size(), CUDA_ERROR_INVALID_VALUE);
  return exec.nodes[exec.places[index]].work;
}

void GraphExecs::note_change(CUgraphExec handle) {
  const GraphExec& exec = get(handle);
  devices_.catch_up();
  if (exec.is_in_flight()) ++counters_.graphs_disturbed;
}

// A launch: what it makes of a graph's nodes in the order of the stream.
//
// A node runs after its first dependency as copies on one stream do, when that is of the same
// device and nothing runs after it in this way yet; the end of every other dependency reaches it
// as an event does. The launch itself is the one dependency of nodes that have none, and ends
// after the first node on the stream's device that has no dependents.
namespace {

/// The operations of one launch, in the order of issue: its begin is the first, node i the one at i
/// + 1.
class Steps {
 public:
  void add(OperationPtr operation, int device) {
    steps_.push_back({std::move(operation), device, false});
  }

  /// Makes an operation on `device` run after these steps.
  void order(Operation& operation, int device, const std::vector<std::size_t>& after) {
    for (const std::size_t index : after) {
      Step& before = steps_[index];
      if (index == after.front() && before.device == device && !before.is_followed) {
        before.is_followed = true;
        operation.previous = before.operation;
      } else {
        operation.after.push_back(before.operation);
      }
    }
  }

  [[nodiscard]] int device(std::size_t index) const { return steps_[index].device; }

 private:
  struct Step {
    OperationPtr operation;
    int device;
    bool is_followed;  // by an operation that runs after it as on one stream
  };
  std::vector<Step> steps_;
};

constexpr std::size_t kBegin = 0;

std::size_t step_of(int node) { return static_cast<std::size_t>(node) + 1; }

std::vector<std::size_t> predecessors(const GraphExec::Node& node) {
  std::vector<std::size_t> indices;
  for (const int before : node.after) indices.push_back(step_of(before));
  if (indices.empty()) indices.push_back(kBegin);
  return indices;
}

/// The steps that no other follows, the first on `device` before all others.
std::vector<std::size_t> last_steps(const GraphExec& exec, const Steps& steps, int device) {
  std::vector<bool> is_last(exec.nodes.size() + 1, true);
  for (const GraphExec::Node& node : exec.nodes)
    for (const std::size_t before : predecessors(node)) is_last[before] = false;
  std::vector<std::size_t> indices;
  for (std::size_t index = 0; index < is_last.size(); ++index)
    if (is_last[index]) indices.push_back(index);
  const auto first = std::find_if(indices.begin(), indices.end(),
                                  [&](std::size_t index) { return steps.device(index) == device; });
  if (first != indices.end()) std::rotate(indices.begin(), first, first + 1);
  return indices;
}

}  // namespace

PreparedCopy GraphExecs::prepare(const GraphExec::Node& node) {
  if (const auto* const copy = std::get_if<GraphCopy>(&node.work)) {
    require_placed(*copy);
    const Context& context = contexts_.get(copy->context);
    context.require_no_fault();
    return copies_.prepare(context, {{copy->dst}, {copy->src}, copy->bytes});
  }
  PreparedCopy prepared;
  if (const auto* const event = std::get_if<GraphEvent>(&node.work)) {
    // What was recorded before the launch: after a record of the launch itself a wait is only where
    // the graph says so.
    const Event& recorded = events_.get(event->event);
    if (!event->records && recorded.record != nullptr)
      prepared.operation.after.push_back(recorded.record);
  } else {
    contexts_.get(node.context(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    prepared.operation = kernels_.operation(std::get<KernelCall>(node.work));
  }
  return prepared;
}

void GraphExecs::launch(CUgraphExec handle, CUstream stream_handle) {
  contexts_.current();
  streams_.wait_for_room(stream_handle);
  GraphExec& exec = get(handle);
  Stream& on = streams_.get(stream_handle);
  if (on.capture.is_active()) fail_not_supported("cuGraphLaunch into a stream in capture");
  std::vector<PreparedCopy> works;
  try {
    for (const GraphExec::Node& each : exec.nodes) works.push_back(prepare(each));
  } catch (const Failure&) {
    ++counters_.stale_graph_launches;
    throw;
  }

  Operation begin;
  // A stream keeps its own order; launches on different streams do not overlap either.
  if (exec.last && exec.last_stream != on.id) begin.after.push_back(exec.last);
  Steps steps;
  steps.add(streams_.enqueue(on, std::move(begin)), on.device);
  devices_.spend(node_.costs.graph_launch_us);
  for (std::size_t i = 0; i < works.size(); ++i) {
    Context& context = contexts_.get(exec.nodes[i].context());
    const auto* const event = std::get_if<GraphEvent>(&exec.nodes[i].work);
    if (event != nullptr && event->records)
      works[i].operation = events_.record_operation(event->event);
    steps.order(works[i].operation, context.device, predecessors(exec.nodes[i]));
    if (std::holds_alternative<GraphCopy>(exec.nodes[i].work)) copies_.count(works[i]);
    // As a copy on a stream, a node may run from the begin of its own issue.
    const OperationPtr issued = devices_.issue(std::move(works[i].operation));
    if (issued->kernel_on >= 0) kernels_.note_issued(issued);
    if (event != nullptr && event->records) events_.note_record(event->event, issued, 0);
    devices_.spend(node_.costs.graph_launch_node_us);
    steps.add(issued, context.device);
    if (context.handle != on.context) context.add_orphan(issued);
  }
  Operation end;
  steps.order(end, on.device, last_steps(exec, steps, on.device));
  exec.last = on.tail = devices_.issue(std::move(end));
  exec.last_stream = on.id;
}

}  // namespace polypath::sim
