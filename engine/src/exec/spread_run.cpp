#include "exec/spread_run.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/failed_run.hpp"

namespace polypath {
namespace {

/// What the fork, the end, and the end of a failed run put on a channel.
constexpr int kOperationsASpread = 5;
/// A copy and a record, or a wait and a copy.
constexpr int kOperationsAChunk = 2;

class SpreadRun {
 public:
  SpreadRun(const CudaDriver& driver, RouteResources& resources, const SpreadTrees& trees,
            const SpreadPlan& plan, const BoundSpread& spread)
      : driver_(driver),
        resources_(resources),
        trees_(trees),
        plan_(plan),
        spread_(spread),
        schedule_(make_schedule(trees, plan)),
        guard_(driver) {
    for (const SpreadEnd& end : spread.ends)
      if (std::ranges::none_of(callers_,
                               [&](const Caller& known) { return known.stream == end.caller; }))
        callers_.push_back({end.caller, end.caller_gpu, nullptr});
  }

  /// False: `result` says which link is busy.
  bool lease(SpreadResult& result) {
    EventPool& events = resources_.events();
    const Caller& first = callers_.front();
    // The fork is the sample's first event.
    EventPool& forks = spread_.sample != nullptr ? spread_.sample->events() : events;
    ticket_ = std::make_shared<TransferState>(first.stream,
                                              std::make_shared<PooledEvent>(forks, first.gpu));
    const int operations = kOperationsASpread + kOperationsAChunk * plan_.chunks;
    for (const SpreadShare& share : plan_.shares) {
      const SpreadTree& tree = trees_.trees[share.tree];
      Branch branch;
      const auto add = [&](int link) {
        auto lease = resources_.lease_link(link, ticket_, operations);
        if (!lease) {
          result.busy_link = link;
          result.busy_gpu = tree.gpu;
          return false;
        }
        // The GPU that issues: of a feed from a GPU the source.
        const int gpu = lease->gpu(0);
        branch.legs.push_back({std::move(*lease), std::make_shared<PooledEvent>(events, gpu)});
        return true;
      };
      if (!add(tree.feed) || !std::ranges::all_of(tree.forward, add)) return false;
      branch.chunk = std::make_shared<PooledEvent>(events, branch.legs.front().lease.gpu(0));
      branches_.push_back(std::move(branch));
    }
    // None may be missing once copies are under way.
    for (Caller& caller : callers_)
      caller.event = std::make_shared<PooledEvent>(events, caller.gpu);
    return true;
  }

  void fork() {
    const Caller& first = callers_.front();
    for (std::size_t c = 1; c < callers_.size(); ++c) {
      const Caller& caller = callers_[c];
      guard_.use(caller.stream.context);
      POLYPATH_CHECK(driver_, event_record(caller.event->get(), caller.stream.stream));
      guard_.use(first.stream.context);
      POLYPATH_CHECK(driver_, stream_wait_event(first.stream.stream, caller.event->get(), 0));
    }
    guard_.use(first.stream.context);
    ticket_->record(driver_);
    if (spread_.sample != nullptr) spread_.sample->begin(ticket_->fork_event());
  }

  void issue() {
    for (Branch& branch : branches_) {
      Leg& feed = branch.legs.front();
      guard_.use(feed.lease.context(0));
      for (Leg& leg : branch.legs) leg.lease.begin();
      POLYPATH_CHECK(driver_, stream_wait_event(feed.stream(), ticket_->fork(), 0));
    }
    for (const Step& step : schedule_.steps) issue(step);
  }

  void end() {
    for (Branch& branch : branches_)
      for (Leg& leg : branch.legs) end(leg);
  }

  void join() {
    const Caller& first = callers_.front();
    guard_.use(first.stream.context);
    TransferSample* const sample = spread_.sample.get();
    if (sample != nullptr) sample->direct(driver_, first.stream.stream);
    for (std::size_t s = 0; s < branches_.size(); ++s) {
      for (const Leg& leg : ends_of(branches_[s]))
        POLYPATH_CHECK(driver_, stream_wait_event(first.stream.stream, leg.end->get(), 0));
      if (sample != nullptr) sample->route(driver_, first.stream.stream, s);
    }
    join_others();
    ticket_->joined();
  }

  /// Makes all callers' streams wait for all that was issued and may be under way; false: one of
  /// them does not. What has no known end breaks with its lease.
  bool end_after_failure() noexcept {
    for (const SpreadShare& share : plan_.shares) mark_failed_gpus(trees_.trees[share.tree]);
    const Caller& first = callers_.front();
    bool is_ordered = true;
    for (Branch& branch : branches_) {
      for (Leg& leg : branch.legs) {
        if (!leg.is_ended && !leg.lease.begun()) continue;
        const bool waits = succeeds_after_failure([&] {
          if (!leg.is_ended) end(leg);
          guard_.use(first.stream.context);
          POLYPATH_CHECK(driver_, stream_wait_event(first.stream.stream, leg.end->get(), 0));
        });
        is_ordered = (waits || !may_be_under_way(driver_, leg.stream())) && is_ordered;
      }
    }
    if (is_issued_) is_ordered = succeeds_after_failure([&] { join_others(); }) && is_ordered;
    // Without a ticket nothing was leased.
    if (is_ordered && ticket_ != nullptr) ticket_->joined();
    if (!is_ordered) log_warn("a caller's stream does not wait for all of a failed spread");
    return is_ordered;
  }

  void end_sequences() noexcept {
    for (const Caller& caller : callers_) resources_.sequences().end(caller.stream);
  }
  [[nodiscard]] bool is_issued() const noexcept { return is_issued_; }

 private:
  struct Caller {
    CallerStream stream;
    int gpu = 0;
    /// The fork of all but the first. The first one's: the end of all.
    std::shared_ptr<PooledEvent> event;
  };
  /// A link of a tree.
  struct Leg {
    Leg(RouteLease own, std::shared_ptr<PooledEvent> event)
        : lease(std::move(own)), channel(*lease.channel(0)), end(std::move(event)) {}
    [[nodiscard]] CUstream stream() const noexcept { return channel.stream; }

    RouteLease lease;
    const Channel& channel;  ///< stays when the lease has ended
    std::shared_ptr<PooledEvent> end;
    bool is_ended = false;
  };
  struct Branch {
    std::vector<Leg> legs;               ///< the feed, then the forwards
    std::shared_ptr<PooledEvent> chunk;  ///< of the feed's last chunk
  };
  [[nodiscard]] CUdeviceptr address(const Place& place) const noexcept {
    if (place.buffer == BufferKind::input) return spread_.src + place.offset;
    return std::ranges::find(spread_.ends, place.owner, &SpreadEnd::gpu)->dst + place.offset;
  }

  void issue(const Step& step) {
    const auto queue = static_cast<std::size_t>(step.queue);
    const Branch& branch = branches_[queue / trees_.gpus.size()];
    const Leg& leg = branch.legs[queue % trees_.gpus.size()];
    guard_.use(leg.channel.context);
    // It is the latest chunk of the feed.
    if (step.after.count > 0)
      POLYPATH_CHECK(driver_, stream_wait_event(leg.stream(), branch.chunk->get(), 0));
    POLYPATH_CHECK(driver_,
                   memcpy_async(address(step.to), address(step.from), step.bytes, leg.stream()));
    is_issued_ = true;
    if (step.is_awaited) POLYPATH_CHECK(driver_, event_record(branch.chunk->get(), leg.stream()));
  }

  void end(Leg& leg) {
    guard_.use(leg.channel.context);
    POLYPATH_CHECK(driver_, event_record(leg.end->get(), leg.stream()));
    leg.lease.finish(leg.end);
    leg.is_ended = true;
  }

  /// The legs whose ends cover all of the branch: what is sent on comes after what is fetched.
  static std::span<const Leg> ends_of(const Branch& branch) noexcept {
    const std::span<const Leg> legs(branch.legs);
    return legs.size() > 1 ? legs.subspan(1) : legs;
  }

  /// The other callers' streams wait for the first one.
  void join_others() {
    if (callers_.size() == 1) return;
    const Caller& first = callers_.front();
    guard_.use(first.stream.context);
    POLYPATH_CHECK(driver_, event_record(first.event->get(), first.stream.stream));
    for (std::size_t c = 1; c < callers_.size(); ++c) {
      guard_.use(callers_[c].stream.context);
      POLYPATH_CHECK(driver_, stream_wait_event(callers_[c].stream.stream, first.event->get(), 0));
    }
  }

  void mark_failed_gpus(const SpreadTree& tree) noexcept {
    try {
      resources_.mark_failed_gpus({RouteKind::via_gpu, MemoryId::gpu(tree.gpu), {tree.feed}});
    } catch (const std::exception& error) {
      log_info("after a failed spread: {}", error.what());
    }
  }

  const CudaDriver& driver_;
  RouteResources& resources_;
  const SpreadTrees& trees_;
  const SpreadPlan& plan_;
  const BoundSpread& spread_;
  const Schedule schedule_;  // made before anything is leased
  ContextGuard guard_;
  std::vector<Caller> callers_;  // each stream once
  std::shared_ptr<TransferState> ticket_;
  std::vector<Branch> branches_;  // by share
  bool is_issued_ = false;
};

}  // namespace

SpreadResult run_spread(const CudaDriver& driver, RouteResources& resources,
                        const SpreadTrees& trees, const SpreadPlan& plan,
                        const BoundSpread& spread) noexcept {
  SpreadResult result;
  std::optional<SpreadRun> run;
  try {
    run.emplace(driver, resources, trees, plan, spread);
    if (!run->lease(result)) return result;
    run->fork();
    run->issue();
    run->end();
    run->join();
  } catch (...) {
    result.error = std::current_exception();
    if (run) result.is_ordered = run->end_after_failure();
  }
  if (run) {
    run->end_sequences();
    result.is_issued = run->is_issued();
  }
  return result;
}

}  // namespace polypath
