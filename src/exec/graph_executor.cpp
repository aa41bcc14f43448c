#include "exec/graph_executor.hpp"

#include <cstddef>
#include <utility>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "exec/context_guard.hpp"

namespace polypath {
namespace {

/// Two graphs on one stream would run one after the other.
bool streams_differ(const std::vector<BoundTransfer>& transfers) {
  for (std::size_t a = 0; a < transfers.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (transfers[a].ticket != nullptr && transfers[b].ticket != nullptr &&
          transfers[a].caller == transfers[b].caller)
        return false;
  return true;
}

/// The addresses of one copy, and whose context carries it.
NodePlace place_of(const CopyDag& dag, const DagCopy& copy, const BoundTransfer& transfer) {
  const auto route = static_cast<std::size_t>(copy.route);
  const RouteLease& lease = transfer.leases[route];
  if (lease.ring == nullptr)
    return {transfer.dst + copy.offset, transfer.src + copy.offset, transfer.caller_gpu,
            transfer.caller.context};
  const CUdeviceptr slot =
      lease.ring->memory + static_cast<std::uint64_t>(copy.slot) * dag.rings[route].slot_bytes;
  if (copy.leg == 0)
    return {slot, lease.ends.src + copy.offset, lease.first->gpu, lease.first->context};
  return {lease.ends.dst + copy.offset, slot, lease.second->gpu, lease.second->context};
}

}  // namespace

/// One run, from the first fork to the last launch.
class GraphExecutor::Run {
 public:
  Run(GraphExecutor& executor, const Schedule& schedule, std::vector<BoundTransfer>& transfers)
      : executor_(executor),
        driver_(*executor.driver_),
        schedule_(schedule),
        transfers_(transfers),
        guard_(driver_),
        graphs_(transfers.size(), nullptr) {}
  ~Run() {
    for (CachedGraph* const graph : graphs_)
      if (graph != nullptr) executor_.cache_.release(*graph);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  [[nodiscard]] bool copied() const noexcept { return copied_; }

  /// A graph for each split transfer; nothing is launched. False: there is one without.
  bool acquire() {
    for (std::size_t t = 0; t < transfers_.size(); ++t) {
      const BoundTransfer& transfer = transfers_[t];
      if (transfer.ticket == nullptr) continue;
      GraphRequest& request = executor_.request_;
      request.dag = schedule_.dags[t];
      request.gpu = transfer.caller_gpu;
      request.dst_buffer = transfer.dst_buffer;
      request.src_buffer = transfer.src_buffer;
      request.places.clear();
      for (const DagCopy& copy : request.dag->copies)
        request.places.push_back(place_of(*request.dag, copy, transfer));
      graphs_[t] = executor_.cache_.acquire(request, *transfer.ticket);
      if (graphs_[t] == nullptr) return false;
    }
    return true;
  }

  /// One event on each caller's stream, then what its rings must wait for.
  void fork() {
    for (BoundTransfer& transfer : transfers_) {
      if (transfer.ticket == nullptr) continue;
      guard_.use(transfer.caller.context);
      POLYPATH_CHECK(driver_, event_record(transfer.ticket->fork(), transfer.caller.stream));
      for (const RouteLease& lease : transfer.leases)
        if (lease.ring_free != nullptr)
          POLYPATH_CHECK(driver_,
                         stream_wait_event(transfer.caller.stream, lease.ring_free->get(), 0));
    }
  }

  void launch() {
    for (std::size_t t = 0; t < transfers_.size(); ++t) {
      BoundTransfer& transfer = transfers_[t];
      guard_.use(transfer.caller.context);
      if (graphs_[t] == nullptr) {
        copy_native(transfer, static_cast<int>(t));
      } else {
        launch_graph(transfer, *std::exchange(graphs_[t], nullptr));
      }
    }
  }

 private:
  void copy_native(const BoundTransfer& transfer, int index) {
    for (const Copy& copy : schedule_.copies) {
      if (copy.transfer != index) continue;
      POLYPATH_CHECK(driver_, memcpy_async(transfer.dst + copy.offset, transfer.src + copy.offset,
                                           copy.bytes, transfer.caller.stream));
      copied_ = true;
    }
  }

  void launch_graph(BoundTransfer& transfer, CachedGraph& graph) {
    GraphCache& cache = executor_.cache_;
    std::shared_ptr<PooledEvent> end;
    try {
      end = std::make_shared<PooledEvent>(executor_.events_, transfer.caller_gpu);
      graph.graph->launch(transfer.caller.stream);
    } catch (...) {
      cache.give_up(graph);
      throw;
    }
    copied_ = true;
    const CUresult recorded = driver_.event_record(end->get(), transfer.caller.stream);
    for (RouteLease& lease : transfer.leases) {
      if (lease.ring == nullptr) continue;
      lease.ring->tail = transfer.ticket;
      lease.ring->last_read = end;
      lease.ring->broken = recorded != CUDA_SUCCESS;
    }
    if (recorded != CUDA_SUCCESS) {
      // Nobody can tell when the graph and its rings are free again.
      cache.lose(graph);
      throw_driver_error(driver_, recorded, "event_record(end, stream)", __FILE__, __LINE__);
    }
    cache.launched(graph, transfer.ticket, std::move(end));
  }

  GraphExecutor& executor_;
  const CudaDriver& driver_;
  const Schedule& schedule_;
  std::vector<BoundTransfer>& transfers_;
  ContextGuard guard_;
  std::vector<CachedGraph*> graphs_;  // by transfer
  bool copied_ = false;
};

RunOutcome GraphExecutor::run(const Schedule& schedule, std::vector<BoundTransfer>& transfers) {
  if (!supported_ || !streams_differ(transfers)) return streams_.run(schedule, transfers);
  Run run(*this, schedule, transfers);
  if (!run.acquire()) return streams_.run(schedule, transfers);
  try {
    run.fork();
    run.launch();
  } catch (const std::exception& error) {
    if (run.copied()) throw;
    log_info("native copy instead: {}", error.what());
    return RunOutcome::failed_before_first_copy;
  }
  return RunOutcome::done;
}

}  // namespace polypath
