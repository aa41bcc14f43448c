#include "exec/stream_executor.hpp"

#include <cstddef>
#include <utility>

#include "base/log.hpp"

namespace polypath {

/// One run, from fork to join.
class StreamExecutor::Run : public LeasedRun {
 public:
  Run(const CudaDriver& driver, RouteResources& resources, const Schedule& schedule,
      const std::vector<BoundTransfer>& transfers)
      : LeasedRun(driver, resources, schedule, transfers),
        step_events_(transfers.size()),
        ends_(transfers.size()) {
    for (std::size_t t = 0; t < transfers.size(); ++t)
      step_events_[t].resize(schedule_of(t).steps.size());
  }

  ~Run() {
    for (std::size_t t = 0; t < transfers_.size(); ++t)
      for (std::size_t i = 0; i < step_events_[t].size(); ++i) release_event(t, i);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// The direct copies, which the schedule lists first, do not wait until the staged routes are set
  /// up.
  void issue_all() {
    bool is_open = false;
    for (const auto [transfer, step] : schedule_.order) {
      const auto t = static_cast<std::size_t>(transfer);
      const auto s = static_cast<std::size_t>(step);
      if (!is_open && lease_of(t, s)) {
        open_routes();
        is_open = true;
      }
      issue(t, s);
    }
  }

  /// Records the end of every staged route, and gives back what it was lent.
  void end_leases() {
    for (std::size_t t = 0; t < leases_.size(); ++t)
      for (std::size_t r = 0; r < leases_[t].size(); ++r)
        if (leases_[t][r]) end(t, r);
  }

  /// Each caller's stream waits for the ends of its staged routes.
  void join() {
    for (std::size_t t = 0; t < transfers_.size(); ++t) {
      const CallerStream& caller = transfers_[t].caller;
      TransferSample* const sample = transfers_[t].sample.get();
      if (!ends_[t].empty()) guard_.use(caller.context);
      if (sample != nullptr) sample->direct(driver_, caller.stream);
      for (const auto& [route, end] : ends_[t]) {
        POLYPATH_CHECK(driver_, stream_wait_event(caller.stream, end->get(), 0));
        if (sample != nullptr) sample->route(driver_, caller.stream, route);
      }
      if (tickets_[t] != nullptr) tickets_[t]->joined();
    }
  }

  void remember() noexcept {
    try {
      remember_sequences();
    } catch (const std::bad_alloc&) {
      end_sequences();
    }
  }

  /// The callers' streams wait for whatever was issued. What has no known end breaks with its
  /// lease.
  void end_after_failure() noexcept {
    end_sequences();
    for (std::size_t t = 0; t < leases_.size(); ++t) {
      for (std::size_t r = 0; r < leases_[t].size(); ++r) {
        const RouteLease& lease = leases_[t][r];
        if (!lease || !lease.begun()) continue;
        try {
          const Channel& first = *lease.channel(0);
          const Channel& second = *lease.channel(1);
          const PooledEvent first_end(resources_.events(), first.gpu);
          guard_.use(first.context);
          POLYPATH_CHECK(driver_, event_record(first_end.get(), first.stream));
          guard_.use(second.context);
          POLYPATH_CHECK(driver_, stream_wait_event(second.stream, first_end.get(), 0));
          end(t, r);
        } catch (const DriverError& error) {
          log_message(level_of_result(error.code()),
                      fmt::format("nobody can tell when a staged route ends: {}", error.what()));
        } catch (const std::exception& error) {
          log_warn("nobody can tell when a staged route ends: {}", error.what());
        }
      }
    }
    try {
      join();
    } catch (const DriverError& error) {
      log_message(
          level_of_result(error.code()),
          fmt::format("a caller's stream does not wait for a failed transfer: {}", error.what()));
    } catch (const std::exception& error) {
      log_warn("a caller's stream does not wait for a failed transfer: {}", error.what());
    }
  }

 private:
  [[nodiscard]] const Step& step_of(std::size_t transfer, std::size_t step) const {
    return schedule_of(transfer).steps[step];
  }
  [[nodiscard]] const RouteLease& lease_of(std::size_t transfer, std::size_t step) const {
    return leases_[transfer][static_cast<std::size_t>(step_of(transfer, step).route)];
  }

  /// Every staged route waits for its transfer's fork, and for its ring.
  void open_routes() {
    for (std::size_t t = 0; t < leases_.size(); ++t) {
      for (RouteLease& lease : leases_[t]) {
        if (!lease) continue;
        const Channel& first = *lease.channel(0);
        guard_.use(first.context);
        lease.begin();
        POLYPATH_CHECK(driver_, stream_wait_event(first.stream, tickets_[t]->fork(), 0));
        if (lease.ring_free() != nullptr)
          POLYPATH_CHECK(driver_, stream_wait_event(first.stream, lease.ring_free()->get(), 0));
      }
    }
  }

  void end(std::size_t transfer, std::size_t route) {
    RouteLease& lease = leases_[transfer][route];
    const Channel& last = *lease.channel(1);
    auto end = std::make_shared<PooledEvent>(resources_.events(), last.gpu);
    guard_.use(last.context);
    POLYPATH_CHECK(driver_, event_record(end->get(), last.stream));
    ends_[transfer].emplace_back(route, end);
    lease.finish(std::move(end));
  }

  void issue(std::size_t t, std::size_t s) {
    const Step& step = step_of(t, s);
    const RouteLease& lease = lease_of(t, s);
    const BoundTransfer& transfer = transfers_[t];
    CUstream stream = transfer.caller.stream;
    int gpu = transfer.caller_gpu;
    if (lease) {
      const Channel& channel = *lease.channel(step.leg);
      stream = channel.stream;
      gpu = channel.gpu;
      guard_.use(channel.context);
      // The steps before it over the same leg are on the same stream.
      if (step.after[1] != kNoStep) {
        const auto before = static_cast<std::size_t>(step.after[1]);
        POLYPATH_CHECK(driver_, stream_wait_event(stream, step_events_[t][before], 0));
        release_event(t, before);
      }
    } else {
      guard_.use(transfer.caller.context);
    }
    POLYPATH_CHECK(driver_, memcpy_async(address(t, step, step.to), address(t, step, step.from),
                                         step.bytes, stream));
    issued_ = true;
    if (step.awaited) {
      CUevent& event = step_events_[t][s];
      event = resources_.events().acquire(gpu);
      POLYPATH_CHECK(driver_, event_record(event, stream));
    }
  }

  /// The one wait for it was issued, so the event may be recorded anew.
  void release_event(std::size_t transfer, std::size_t step) noexcept {
    CUevent& event = step_events_[transfer][step];
    if (event == nullptr) return;
    resources_.events().release(resources_.issuer(step_of(transfer, step).link), event);
    event = nullptr;
  }

  // By transfer and step: recorded, not yet waited for.
  std::vector<std::vector<CUevent>> step_events_;
  /// By transfer: staged routes with the events of their ends.
  std::vector<std::vector<std::pair<std::size_t, std::shared_ptr<PooledEvent>>>> ends_;
};

RunResult StreamExecutor::run(const Schedule& schedule,
                              const std::vector<BoundTransfer>& transfers) noexcept {
  std::optional<Run> run;
  try {
    run.emplace(*driver_, resources_, schedule, transfers);
    if (const Route* const busy = run->lease(true)) return {.busy = busy};
    run->fork();
    run->issue_all();
    run->end_leases();
    run->join();
    run->remember();
    return {.issued = true, .narrow = run->narrow(), .followed = run->followed()};
  } catch (...) {
    if (run) run->end_after_failure();
    return {.issued = run && run->issued(), .error = std::current_exception()};
  }
}

}  // namespace polypath
