#include "collectives/plan/schedule_time.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "base/units.hpp"
#include "plan/flow.hpp"

namespace polypath {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// A copy with less left than this has ended: rounding.
constexpr double kMinBytes = 1e-3;

class Clockwork {
 public:
  Clockwork(const Node& node, const CollectiveSchedule& schedule, const Beside& beside)
      : node_(node),
        schedule_(schedule),
        steps_(schedule.steps.size()),
        halts_(!beside.bytes.empty()),
        halted_until_(node.links.size() + node.ports.size(), 0),
        in_use_(halted_until_.size(), 0) {
    for (std::size_t link = 0; link < beside.bytes.size(); ++link) {
      if (beside.bytes[link] <= 0) continue;
      besides_.push_back(static_cast<int>(link));
      starting_.emplace(beside.start_us, static_cast<int>(steps_.size()));
      steps_.emplace_back().left = beside.bytes[link];
    }
    std::vector<int> last(static_cast<std::size_t>(schedule.queues), -1);
    std::vector<double> cpu(static_cast<std::size_t>(schedule.request.ranks()), 0.0);
    for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
      const CollectiveStep& step = schedule.steps[i];
      double& clock = cpu[static_cast<std::size_t>(step.rank)];
      clock += node.costs.copy_issue_us +
               node.costs.call_us * static_cast<double>(step.after.size() + 1);
      steps_[i].ready = clock;
      steps_[i].waits = static_cast<int>(step.after.size());
      for (const int other : step.after)
        steps_[static_cast<std::size_t>(other)].next.push_back(static_cast<int>(i));
      int& before = last[static_cast<std::size_t>(step.queue)];
      if (before >= 0) {
        ++steps_[i].waits;
        steps_[static_cast<std::size_t>(before)].behind = static_cast<int>(i);
      }
      before = static_cast<int>(i);
      if (steps_[i].waits == 0) start(static_cast<int>(i), 0, /*queued=*/false);
    }
  }

  ScheduleTime run() {
    ScheduleTime time;
    std::vector<double> first(schedule_.stages.size(), kNever);
    time.stage_us.assign(schedule_.stages.size(), 0);
    while (!starting_.empty() || !flowing_.empty() || !ending_.empty() || !halting_.empty()) {
      const double next = next_event();
      move_to(next);
      settle();
    }
    for (std::size_t i = schedule_.steps.size(); i < steps_.size(); ++i)
      time.beside_us = std::max(time.beside_us, steps_[i].ended);
    for (std::size_t i = 0; i < schedule_.steps.size(); ++i) {
      const auto stage = static_cast<std::size_t>(schedule_.steps[i].stage);
      first[stage] = std::min(first[stage], steps_[i].began);
      time.stage_us[stage] = std::max(time.stage_us[stage], steps_[i].ended);
      time.us = std::max(time.us, steps_[i].ended);
    }
    for (std::size_t stage = 0; stage < first.size(); ++stage)
      time.stage_us[stage] -= std::min(first[stage], time.stage_us[stage]);
    return time;
  }

 private:
  struct State {
    double ready = 0;  // the latest of what it waited for so far
    int waits = 0;
    std::vector<int> next;  // steps of other queues that wait for it
    int behind = -1;        // the one behind it in its queue
    double began = 0;
    double ended = 0;
    double left = 0;  // bytes, of a copy
  };

  [[nodiscard]] bool is_same_communicator(int step) const {
    return static_cast<std::size_t>(step) >= schedule_.steps.size();
  }
  [[nodiscard]] int link_of(int step) const {
    return is_same_communicator(step)
               ? besides_[static_cast<std::size_t>(step) - schedule_.steps.size()]
               : step_of(step).link;
  }
  /// Calls `use` with the index of the link, and of each of its ports.
  template <typename Use>
  void for_each_resource(int link, const Use& use) const {
    use(static_cast<std::size_t>(link));
    for (const int port : node_.links[static_cast<std::size_t>(link)].ports)
      use(node_.links.size() + static_cast<std::size_t>(port));
  }

  State& state(int step) { return steps_[static_cast<std::size_t>(step)]; }
  [[nodiscard]] const CollectiveStep& step_of(int step) const {
    return schedule_.steps[static_cast<std::size_t>(step)];
  }

  /// All that the step waits for has ended. `queued`: it stood behind the last to end.
  void start(int step, double now, bool queued) {
    const Costs& costs = node_.costs;
    const bool reduces = step_of(step).kind == CollectiveStepKind::reduce;
    const double lead =
        reduces ? costs.kernel_start_us : (queued ? costs.copy_gap_us : costs.copy_start_us);
    const double at = std::max(now, state(step).ready) + lead;
    starting_.emplace(at, step);
    if (halts_ && step_of(step).link >= 0)
      halting_.emplace(std::max(now, at - costs.copy_handover_us), step);
  }

  /// A copy that is about to start halts what is in use on its way.
  void halt(int step) {
    for_each_resource(link_of(step), [&](std::size_t resource) {
      if (in_use_[resource] > 0)
        halted_until_[resource] =
            std::max(halted_until_[resource], now_) + node_.costs.copy_handover_us;
      ++in_use_[resource];
    });
  }
  [[nodiscard]] double halted_until(int step) const {
    double until = 0;
    if (halts_)
      for_each_resource(link_of(step), [&](std::size_t resource) {
        until = std::max(until, halted_until_[resource]);
      });
    return until;
  }

  double next_event() {
    double next = kNever;
    if (!starting_.empty()) next = std::min(next, starting_.begin()->first);
    if (!ending_.empty()) next = std::min(next, ending_.begin()->first);
    if (!halting_.empty()) next = std::min(next, halting_.begin()->first);
    const std::vector<int> moving = moving_now();
    if (!moving.empty()) {
      const std::vector<double>& rates = rates_of(moving);
      for (std::size_t i = 0; i < moving.size(); ++i)
        next = std::min(next, now_ + state(moving[i]).left / (rates[i] * kBytesPerGbpsUs));
    }
    if (moving.size() < flowing_.size())
      for (const int step : flowing_)
        if (const double until = halted_until(step); until > now_) next = std::min(next, until);
    return next;
  }

  void move_to(double time) {
    const std::vector<int> moving = moving_now();
    if (!moving.empty()) {
      const std::vector<double>& rates = rates_of(moving);
      for (std::size_t i = 0; i < moving.size(); ++i)
        state(moving[i]).left -= rates[i] * kBytesPerGbpsUs * (time - now_);
    }
    now_ = time;
  }

  /// Starts and ends what is due now.
  void settle() {
    std::vector<int> ended;
    for (auto step = flowing_.begin(); step != flowing_.end();) {
      if (state(*step).left > kMinBytes) {
        ++step;
        continue;
      }
      ended.push_back(*step);
      step = flowing_.erase(step);
    }
    while (!ending_.empty() && ending_.begin()->first <= now_) {
      ended.push_back(ending_.begin()->second);
      ending_.erase(ending_.begin());
    }
    for (const int step : ended) end(step);
    while (!halting_.empty() && halting_.begin()->first <= now_) {
      const int step = halting_.begin()->second;
      halting_.erase(halting_.begin());
      halt(step);
    }
    while (!starting_.empty() && starting_.begin()->first <= now_) {
      const int step = starting_.begin()->second;
      starting_.erase(starting_.begin());
      begin(step);
    }
    std::ranges::sort(flowing_);
  }

  void begin(int index) {
    state(index).began = now_;
    if (is_same_communicator(index)) {
      for_each_resource(link_of(index), [&](std::size_t resource) { ++in_use_[resource]; });
      flowing_.push_back(index);
      return;
    }
    const CollectiveStep& step = step_of(index);
    if (step.link >= 0) {
      state(index).left = static_cast<double>(bytes_of(schedule_, step, step.partial.front()));
      flowing_.push_back(index);
      return;
    }
    std::uint64_t bytes = bytes_of(schedule_, step, step.to_partial);
    for (const bool partial : step.partial) bytes += bytes_of(schedule_, step, partial);
    ending_.emplace(now_ + transfer_us(bytes, node_.costs.memory_gbps), index);
  }

  void end(int index) {
    state(index).ended = now_;
    if (halts_ && link_of(index) >= 0)
      for_each_resource(link_of(index), [&](std::size_t resource) { --in_use_[resource]; });
    if (is_same_communicator(index)) return;
    const int rank = step_of(index).rank;
    for (const int other : state(index).next) {
      double hop = 0;
      if (step_of(other).rank != rank) {
        hop = node_.costs.flag_us;
        // By a kernel, and an event from there.
        if (schedule_.waits_aside) hop += node_.costs.event_us + node_.costs.kernel_start_us;
      }
      release(other, now_ + node_.costs.event_us + hop, false);
    }
    if (state(index).behind >= 0) release(state(index).behind, now_, true);
  }

  void release(int step, double at, bool queued) {
    State& waiting = state(step);
    const bool last = at >= waiting.ready;
    waiting.ready = std::max(waiting.ready, at);
    if (--waiting.waits == 0) start(step, now_, queued && last);
  }

  /// Of flowing_ what is not halted.
  [[nodiscard]] std::vector<int> moving_now() const {
    std::vector<int> moving;
    for (const int step : flowing_)
      if (halted_until(step) <= now_) moving.push_back(step);
    return moving;
  }

  /// GB/s of each. What flows together comes again and again.
  const std::vector<double>& rates_of(const std::vector<int>& moving) {
    std::vector<int> links;
    for (const int step : moving) links.push_back(link_of(step));
    const auto known = rates_.find(links);
    if (known != rates_.end()) return known->second;
    Demand demand;
    for (const int link : links) demand.routes.push_back({RouteKind::direct, {}, {link}});
    return rates_.emplace(links, fair_rates(node_, {demand}).front()).first->second;
  }

  const Node& node_;
  const CollectiveSchedule& schedule_;
  std::vector<State> steps_;
  std::vector<int> besides_;  // links of what is beside the schedule: behind its steps
  const bool halts_;
  std::vector<double> halted_until_;  // of each link, then of each port
  std::vector<int> in_use_;           // likewise: copies, and what is beside them
  std::multimap<double, int> halting_;
  std::multimap<double, int> starting_;
  std::multimap<double, int> ending_;  // reductions and copies within a memory
  std::vector<int> flowing_;           // copies over links
  std::map<std::vector<int>, std::vector<double>> rates_;
  double now_ = 0;
};

}  // namespace

ScheduleTime schedule_time(const Node& node, const CollectiveSchedule& schedule,
                           const Beside& beside) {
  return Clockwork(node, schedule, beside).run();
}

}  // namespace polypath
