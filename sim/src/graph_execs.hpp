// Instantiated graphs, and their launches.
//
// GraphExecs owns all instantiated graphs, guarded by the driver's lock. A handle that is none, or
// no longer, is Failure INVALID_VALUE. A launch may give the lock back before it looks anything up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "contexts.hpp"
#include "copies.hpp"
#include "counters.hpp"
#include "cuda_api.hpp"
#include "devices.hpp"
#include "events.hpp"
#include "graphs.hpp"
#include "handle_table.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "operation.hpp"
#include "streams.hpp"
#include "topology/node.hpp"

namespace polypath::sim {

/// An instantiated graph: a copy of the graph as it was then.
struct GraphExec {
  struct Node {
    std::vector<int> after;
    GraphWork work;

    [[nodiscard]] CUcontext context() const {
      if (const auto* const copy = std::get_if<GraphCopy>(&work)) return copy->context;
      if (const auto* const event = std::get_if<GraphEvent>(&work)) return event->context;
      return std::get<KernelCall>(work).context;
    }
  };
  CUgraph graph = nullptr;          ///< that it was made from; it may be gone
  std::vector<Node> nodes;          ///< each after those that it depends on
  std::vector<std::size_t> places;  ///< among them, of the graph's nodes
  OperationPtr last;                ///< end of its most recent launch; null: never launched
  std::uint64_t last_stream = 0;    ///< id of the stream of that launch

  [[nodiscard]] bool is_in_flight() const noexcept { return last && !last->done; }
};

class GraphExecs {
 public:
  /// The others must outlive this.
  GraphExecs(const Node& node, const Memory& memory, const Graphs& graphs, Contexts& contexts,
             Streams& streams, Events& events, Copies& copies, Kernels& kernels, Devices& devices,
             Counters& counters)
      : node_(node),
        memory_(memory),
        graphs_(graphs),
        contexts_(contexts),
        streams_(streams),
        events_(events),
        copies_(copies),
        kernels_(kernels),
        devices_(devices),
        counters_(counters) {}

  /// Failure NOT_SUPPORTED for a graph with captured work of which nothing is known; INVALID_VALUE
  /// when memory of a copy is gone or placed differently than it was, CONTEXT_IS_DESTROYED when its
  /// context is.
  CUgraphExec instantiate(CUgraph handle);
  /// A launch under way goes on to its end.
  void destroy(CUgraphExec handle);
  /// Destroys all with a node that runs in the context.
  void destroy_all(CUcontext context);
  [[nodiscard]] std::size_t live() const noexcept { return table_.live(); }

  /// What the node of the graph that it was made from does in it, to be replaced by work of the
  /// same kind after note_change(). A node that was added later is no part of it: Failure
  /// INVALID_VALUE.
  [[nodiscard]] GraphWork& work(CUgraphExec handle, CUgraphNode node);
  /// Counts the change of an instantiated graph that is in flight.
  void note_change(CUgraphExec handle);

  /// Runs all nodes as one item of the stream. On any failure none is run.
  void launch(CUgraphExec handle, CUstream stream);

 private:
  GraphExec& get(CUgraphExec handle) const;
  /// Failure INVALID_VALUE when memory of the copy is gone or placed differently than it was,
  /// CONTEXT_IS_DESTROYED when its context is.
  void require_placed(const GraphCopy& copy) const;
  /// What the node does in a launch, checked. Nothing yet of the record of an event.
  [[nodiscard]] PreparedCopy prepare(const GraphExec::Node& node);

  const Node& node_;
  const Memory& memory_;
  const Graphs& graphs_;
  Contexts& contexts_;
  Streams& streams_;
  Events& events_;
  Copies& copies_;
  Kernels& kernels_;
  Devices& devices_;
  Counters& counters_;
  HandleTable<CUgraphExec, GraphExec, 0x51A2> table_;
};

}  // namespace polypath::sim
