#include "exec/stream_executor.hpp"

#include <array>
#include <cstddef>
#include <utility>

#include "base/log.hpp"
#include "exec/failed_run.hpp"

namespace polypath {

/// One run, from fork to join.
class StreamExecutor::Run : public LeasedRun {
 public:
  Run(const CudaDriver& driver, RouteResources& resources, const GroupSchedule& schedule,
      const std::vector<BoundTransfer>& transfers)
      : LeasedRun(driver, resources, schedule, transfers),
        step_events_(transfers.size()),
        ends_(transfers.size()),
        leg_ends_(transfers.size()) {
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

  /// Takes the events of all ends: none may be missing once copies are under way.
  void reserve_ends() {
    for (std::size_t t = 0; t < leases_.size(); ++t) {
      leg_ends_[t].resize(leases_[t].size());
      ends_[t].reserve(leases_[t].size());
      for (std::size_t r = 0; r < leases_[t].size(); ++r)
        for (std::size_t leg = 0; leases_[t][r] && leg < 2; ++leg)
          leg_ends_[t][r][leg] =
              std::make_shared<PooledEvent>(resources_.events(), leases_[t][r].channel(leg)->gpu);
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
      for (const auto& [route, end, channel] : ends_[t]) {
        if (gathers_[t].value_or(route) != route) continue;
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

  /// Makes the callers' streams wait for all that was issued and may be under way; false: one of
  /// them does not. What has no known end breaks with its lease.
  bool end_after_failure() noexcept {
    end_sequences();
    mark_failed_gpus();
    bool is_ordered = true;
    for (std::size_t t = 0; t < leases_.size(); ++t) {
      gathers_[t].reset();
      for (std::size_t r = 0; r < leases_[t].size(); ++r) {
        const RouteLease& lease = leases_[t][r];
        if (!lease || !lease.begun()) continue;
        if (succeeds_after_failure([&] { end_both_legs(t, r); })) continue;
        for (std::size_t leg = 0; leg < 2; ++leg) {
          const Channel& channel = *lease.channel(leg);
          const bool waits = succeeds_after_failure([&] {
            guard_.use(channel.context);
            const CUevent leg_end = leg_ends_[t][r][leg]->get();
            POLYPATH_CHECK(driver_, event_record(leg_end, channel.stream));
            wait(transfers_[t].caller, leg_end);
          });
          is_ordered = (waits || !may_be_under_way(driver_, channel.stream)) && is_ordered;
        }
      }
      for (const auto& [route, end, channel] : ends_[t]) {
        const bool waits = succeeds_after_failure([&] { wait(transfers_[t].caller, end->get()); });
        is_ordered = (waits || !may_be_under_way(driver_, channel->stream)) && is_ordered;
      }
      if (tickets_[t] != nullptr && is_ordered) tickets_[t]->joined();
    }
    if (!is_ordered) log_warn("a caller's stream does not wait for all of a failed transfer");
    return is_ordered;
  }

 private:
  [[nodiscard]] const Step& step_of(std::size_t transfer, std::size_t step) const {
    return schedule_of(transfer).steps[step];
  }
  [[nodiscard]] const RouteLease& lease_of(std::size_t transfer, std::size_t step) const {
    return leases_[transfer][route_of(step_of(transfer, step))];
  }

  void wait(const CallerStream& caller, CUevent event) {
    guard_.use(caller.context);
    POLYPATH_CHECK(driver_, stream_wait_event(caller.stream, event, 0));
  }

  /// For a run that failed in between: the first leg may be ahead of the second.
  void end_both_legs(std::size_t transfer, std::size_t route) {
    const RouteLease& lease = leases_[transfer][route];
    const Channel& first = *lease.channel(0);
    const Channel& second = *lease.channel(1);
    const CUevent first_end = leg_ends_[transfer][route][0]->get();
    guard_.use(first.context);
    POLYPATH_CHECK(driver_, event_record(first_end, first.stream));
    guard_.use(second.context);
    POLYPATH_CHECK(driver_, stream_wait_event(second.stream, first_end, 0));
    end(transfer, route);
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
    const std::shared_ptr<PooledEvent>& end = leg_ends_[transfer][route][1];
    guard_.use(last.context);
    if (gathers_[transfer] == route)
      for (const RouteEnd& other : ends_[transfer])
        POLYPATH_CHECK(driver_, stream_wait_event(last.stream, other.event->get(), 0));
    POLYPATH_CHECK(driver_, event_record(end->get(), last.stream));
    ends_[transfer].push_back({route, end, &last});
    lease.finish(end);
  }

  void issue(std::size_t t, std::size_t s) {
    const TransferSchedule& schedule = schedule_of(t);
    const Step& step = schedule.steps[s];
    const RouteLease& lease = leases_[t][route_of(step)];
    const BoundTransfer& transfer = transfers_[t];
    CUstream stream = transfer.caller.stream;
    int gpu = transfer.caller_gpu;
    if (lease) {
      const Channel& channel = *lease.channel(leg_of(step));
      stream = channel.stream;
      gpu = channel.gpu;
      guard_.use(channel.context);
      for (const int other : schedule.after(step)) {
        const auto before = static_cast<std::size_t>(other);
        POLYPATH_CHECK(driver_, stream_wait_event(stream, step_events_[t][before], 0));
        release_event(t, before);
      }
    } else {
      guard_.use(transfer.caller.context);
    }
    POLYPATH_CHECK(driver_, memcpy_async(address(t, step, step.to), address(t, step, step.from),
                                         step.bytes, stream));
    issued_ = true;
    if (step.is_awaited) {
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
  struct RouteEnd {
    std::size_t route;
    std::shared_ptr<PooledEvent> event;
    const Channel* channel;  ///< of the second leg
  };
  std::vector<std::vector<RouteEnd>> ends_;  // by transfer: of staged routes
  // By transfer, route and leg: for the ends of what the run puts on channels.
  std::vector<std::vector<std::array<std::shared_ptr<PooledEvent>, 2>>> leg_ends_;
};

RunResult StreamExecutor::run(const GroupSchedule& schedule,
                              const std::vector<BoundTransfer>& transfers) noexcept {
  std::optional<Run> run;
  try {
    run.emplace(*driver_, resources_, schedule, transfers);
    if (const Route* const busy = run->lease(true))
      return {.busy = busy, .is_filled = run->is_filled()};
    run->reserve_ends();
    run->fork();
    run->issue_all();
    run->end_leases();
    run->join();
    run->remember();
    return {.issued = true, .narrow = run->narrow(), .followed = run->followed()};
  } catch (...) {
    const bool is_ordered = !run || run->end_after_failure();
    return {.issued = run && run->issued(),
            .is_ordered = is_ordered,
            .error = std::current_exception()};
  }
}

}  // namespace polypath
