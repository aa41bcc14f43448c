#include "exec/graph_executor.hpp"

#include <cstddef>
#include <utility>

#include "base/log.hpp"

namespace polypath {
/// One run, from the first fork to the last launch.
class GraphExecutor::Run : public LeasedRun {
 public:
  Run(GraphExecutor& executor, const GroupSchedule& schedule,
      const std::vector<BoundTransfer>& transfers)
      : LeasedRun(*executor.driver_, executor.resources_, schedule, transfers),
        executor_(executor),
        graphs_(transfers.size(), nullptr) {}
  ~Run() {
    for (CachedGraph* const graph : graphs_)
      if (graph != nullptr) executor_.cache_.release(*graph);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  using LeasedRun::end_sequences;
  using LeasedRun::mark_failed_gpus;

  /// A graph for each split transfer; nothing is launched. False: there is one without.
  bool acquire() {
    for (std::size_t t = 0; t < transfers_.size(); ++t) {
      if (tickets_[t] == nullptr) continue;
      const BoundTransfer& transfer = transfers_[t];
      GraphRequest request;
      request.schedule = schedule_.transfers[t];
      request.gpu = transfer.caller_gpu;
      request.dst_buffer = transfer.dst_buffer;
      request.src_buffer = transfer.src_buffer;
      request.places.reserve(request.schedule->steps.size());
      for (const Step& step : request.schedule->steps) request.places.push_back(place_of(t, step));
      graphs_[t] = executor_.cache_.acquire(request, *tickets_[t]);
      if (graphs_[t] == nullptr) return false;
    }
    return true;
  }

  void launch() {
    for (std::size_t t = 0; t < transfers_.size(); ++t) {
      guard_.use(transfers_[t].caller.context);
      if (graphs_[t] == nullptr) {
        copy_direct(t);
      } else {
        launch_graph(t);
      }
    }
  }

 private:
  /// Where a step reads and writes, and whose context carries it.
  [[nodiscard]] NodePlace place_of(std::size_t t, const Step& step) const {
    const RouteLease& lease = leases_[t][route_of(step)];
    const CUdeviceptr to = address(t, step, step.to);
    const CUdeviceptr from = address(t, step, step.from);
    if (lease) return {to, from, lease.gpu(leg_of(step)), lease.context(leg_of(step))};
    return {to, from, transfers_[t].caller_gpu, transfers_[t].caller.context};
  }

  void copy_direct(std::size_t t) {
    const BoundTransfer& transfer = transfers_[t];
    for (const Step& step : schedule_of(t).steps) {
      POLYPATH_CHECK(driver_,
                     memcpy_async(transfer.dst + step.to.offset, transfer.src + step.from.offset,
                                  step.bytes, transfer.caller.stream));
      issued_ = true;
    }
  }

  void launch_graph(std::size_t t) {
    const BoundTransfer& transfer = transfers_[t];
    GraphCache& cache = executor_.cache_;
    auto end = std::make_shared<PooledEvent>(resources_.events(), transfer.caller_gpu);
    for (RouteLease& lease : leases_[t])
      if (lease && lease.ring_free() != nullptr)
        POLYPATH_CHECK(driver_,
                       stream_wait_event(transfer.caller.stream, lease.ring_free()->get(), 0));
    CachedGraph& graph = *std::exchange(graphs_[t], nullptr);
    try {
      if (transfer.sample != nullptr) transfer.sample->begin(driver_, transfer.caller.stream);
      graph.graph->launch(transfer.caller.stream);
    } catch (...) {
      cache.give_up(graph);
      throw;
    }
    issued_ = true;
    if (transfer.sample != nullptr) transfer.sample->all(driver_, transfer.caller.stream);
    tickets_[t]->joined();
    for (RouteLease& lease : leases_[t])
      if (lease) lease.begin();
    // The transfer is under way as it should. Without a known end its graph and its rings are not
    // used again.
    try {
      POLYPATH_CHECK(driver_, event_record(end->get(), transfer.caller.stream));
      for (RouteLease& lease : leases_[t])
        if (lease) lease.finish(end);
    } catch (const std::exception& error) {
      log_info("the end of a graph is not known: {}", error.what());
      return cache.lose(graph);
    }
    cache.launched(graph, tickets_[t], std::move(end));
  }

  GraphExecutor& executor_;
  std::vector<CachedGraph*> graphs_;  // by transfer
};

RunResult GraphExecutor::run(const GroupSchedule& schedule,
                             const std::vector<BoundTransfer>& transfers) noexcept {
  if (!supported_) return streams_.run(schedule, transfers);
  std::optional<Run> run;
  try {
    run.emplace(*this, schedule, transfers);
    if (const Route* const busy = run->lease(false))
      return {.busy = busy, .is_filled = run->is_filled()};
    if (run->acquire()) {
      run->end_sequences();
      run->fork();
      run->launch();
      return {.issued = true};
    }
  } catch (...) {
    if (run) run->mark_failed_gpus();
    return {.issued = run && run->issued(), .error = std::current_exception()};
  }
  run.reset();
  return streams_.run(schedule, transfers);
}

}  // namespace polypath
