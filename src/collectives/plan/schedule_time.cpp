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
constexpr double kLeastBytes = 1e-3;

class Clockwork {
 public:
  Clockwork(const Node& node, const CollectiveSchedule& schedule)
      : node_(node), schedule_(schedule), steps_(schedule.steps.size()) {
    std::vector<int> last(static_cast<std::size_t>(schedule.queues), -1);
    std::vector<double> cpu(static_cast<std::size_t>(schedule.request.ranks()), 0.0);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
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
    while (!starting_.empty() || !flowing_.empty() || !ending_.empty()) {
      const double next = next_event();
      move_to(next);
      settle();
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) {
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
    starting_.emplace(std::max(now, state(step).ready) + lead, step);
  }

  double next_event() {
    double next = kNever;
    if (!starting_.empty()) next = std::min(next, starting_.begin()->first);
    if (!ending_.empty()) next = std::min(next, ending_.begin()->first);
    if (!flowing_.empty()) {
      const std::vector<double>& rates = current_rates();
      for (std::size_t i = 0; i < flowing_.size(); ++i)
        next = std::min(next, now_ + state(flowing_[i]).left / (rates[i] * kBytesPerGbpsUs));
    }
    return next;
  }

  void move_to(double time) {
    if (!flowing_.empty()) {
      const std::vector<double>& rates = current_rates();
      for (std::size_t i = 0; i < flowing_.size(); ++i)
        state(flowing_[i]).left -= rates[i] * kBytesPerGbpsUs * (time - now_);
    }
    now_ = time;
  }

  /// Starts and ends what is due now.
  void settle() {
    std::vector<int> ended;
    for (auto step = flowing_.begin(); step != flowing_.end();) {
      if (state(*step).left > kLeastBytes) {
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
    while (!starting_.empty() && starting_.begin()->first <= now_) {
      const int step = starting_.begin()->second;
      starting_.erase(starting_.begin());
      begin(step);
    }
    std::ranges::sort(flowing_);
  }

  void begin(int index) {
    const CollectiveStep& step = step_of(index);
    state(index).began = now_;
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
    const int rank = step_of(index).rank;
    for (const int other : state(index).next) {
      const double hop = step_of(other).rank == rank ? 0 : node_.costs.flag_us;
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

  /// GB/s of flowing_. What flows together comes again and again.
  const std::vector<double>& current_rates() {
    std::vector<int> links;
    for (const int step : flowing_) links.push_back(step_of(step).link);
    const auto known = rates_.find(links);
    if (known != rates_.end()) return known->second;
    Demand demand;
    for (const int link : links) demand.routes.push_back({RouteKind::direct, {}, {link}});
    return rates_.emplace(links, fair_rates(node_, {demand}).front()).first->second;
  }

  const Node& node_;
  const CollectiveSchedule& schedule_;
  std::vector<State> steps_;
  std::multimap<double, int> starting_;
  std::multimap<double, int> ending_;  // reductions and copies within a memory
  std::vector<int> flowing_;           // copies over links
  std::map<std::vector<int>, std::vector<double>> rates_;
  double now_ = 0;
};

}  // namespace

ScheduleTime schedule_time(const Node& node, const CollectiveSchedule& schedule) {
  return Clockwork(node, schedule).run();
}

}  // namespace polypath
