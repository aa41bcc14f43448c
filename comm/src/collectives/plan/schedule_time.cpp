#include "collectives/plan/schedule_time.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <queue>
#include <tuple>

#include "base/units.hpp"
#include "collectives/plan/link_rates.hpp"
#include "collectives/plan/rank_program.hpp"

namespace polypath {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// A copy with less left than this has ended: rounding.
constexpr double kMinBytes = 1e-3;

std::atomic<std::uint64_t> runs{0};

/// Steps by the time at which something is due, first in first out at equal times.
class DueSteps {
 public:
  void add(double time, int step) { heap_.emplace(time, added_++, step); }
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] double time() const { return heap_.empty() ? kNever : std::get<0>(heap_.top()); }
  /// The next step that is due at `now`, or -1.
  int take(double now) {
    if (time() > now || heap_.empty()) return -1;
    const int step = std::get<2>(heap_.top());
    heap_.pop();
    return step;
  }

 private:
  using Entry = std::tuple<double, std::uint64_t, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap_;
  std::uint64_t added_ = 0;
};

class Clockwork {
 public:
  Clockwork(const Node& node, const CollectiveSchedule& schedule, const Beside& beside)
      : node_(node),
        schedule_(schedule),
        steps_(schedule.steps.size()),
        halts_(!beside.bytes.empty()),
        halted_until_(node.links.size() + node.ports.size(), 0),
        in_use_(halted_until_.size(), 0),
        rates_(node) {
    for (std::size_t link = 0; link < beside.bytes.size(); ++link) {
      if (beside.bytes[link] <= 0) continue;
      besides_.push_back(static_cast<int>(link));
      starting_.add(beside.start_us, static_cast<int>(steps_.size()));
      steps_.emplace_back().left = beside.bytes[link];
    }
    list_dependents();
    for (int rank = 0; rank < schedule.request.ranks(); ++rank) note_program(rank);
    std::vector<int> last(static_cast<std::size_t>(schedule.queues), -1);
    for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
      const Step& step = schedule.steps[i];
      int& before = last[static_cast<std::size_t>(step.queue)];
      steps_[i].waits = step.after.count;
      if (before >= 0) {
        ++steps_[i].waits;
        steps_[static_cast<std::size_t>(before)].behind = static_cast<int>(i);
      }
      before = static_cast<int>(i);
      if (steps_[i].waits == 0) start(static_cast<int>(i), 0, -1);
    }
  }

  ScheduleTime run() {
    ScheduleTime time;
    std::vector<double> first(schedule_.stages.size(), kNever);
    time.stage_us.assign(schedule_.stages.size(), 0);
    while (!starting_.empty() || !flowing_.empty() || !ending_.empty() || !halting_.empty()) {
      find_moving();
      move_to(next_event());
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
    int behind = -1;  // the next step of its queue
    double began = 0;
    double ended = 0;
    double left = 0;  // bytes, of a copy
    // It hears of other ranks by a kernel:
    bool waits_on_stream = false;  // before it on its own stream
    bool waits_aside = false;      // on another one, its own or that of a step before, and an event
    // Bits: ranks that it tells, each by a value that a stream writes.
    std::uint32_t listeners = 0;
  };

  /// The steps of other queues that wait for each step, in one array.
  void list_dependents() {
    dependents_begin_.assign(schedule_.steps.size() + 1, 0);
    for (const Step& step : schedule_.steps)
      for (const int other : schedule_.after(step))
        ++dependents_begin_[static_cast<std::size_t>(other) + 1];
    for (std::size_t i = 0; i < schedule_.steps.size(); ++i)
      dependents_begin_[i + 1] += dependents_begin_[i];
    dependents_.resize(dependents_begin_.back());
    std::vector<std::size_t> next(dependents_begin_.begin(), dependents_begin_.end() - 1);
    for (std::size_t i = 0; i < schedule_.steps.size(); ++i)
      for (const int other : schedule_.after(schedule_.steps[i]))
        dependents_[next[static_cast<std::size_t>(other)]++] = static_cast<int>(i);
  }

  /// What the steps of `rank` do to hear of other ranks and to tell them, and when they are issued.
  void note_program(int rank) {
    const Costs& costs = node_.costs;
    const RankProgram program = program_of(schedule_, rank);
    double clock = 0;
    for (const RankStep& own : program.steps) {
      State& step = state(own.index);
      step.waits_on_stream = own.waits() && !schedule_.waits_aside;
      step.waits_aside = own.hears() && !step.waits_on_stream;
      for (const StreamProgress& signal : own.signals)
        step.listeners |= std::uint32_t{1} << signal.rank;
      clock += is_copy(own.index) ? costs.copy_issue_us : costs.launch_us;
      std::size_t calls = own.after.size() + own.heard_by.size();
      if (own.waits()) clock += costs.launch_us;
      if (own.waits() && step.waits_aside) calls += 2;
      if (own.is_awaited) ++calls;
      clock += costs.call_us * static_cast<double>(calls) +
               costs.value_us * static_cast<double>(own.signals.size());
      step.ready = clock;
      if (own.waits()) step.ready += costs.kernel_start_us;
      if (own.waits() && step.waits_aside) step.ready += costs.event_us;
    }
  }

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
  [[nodiscard]] const Step& step_of(int step) const {
    return schedule_.steps[static_cast<std::size_t>(step)];
  }

  [[nodiscard]] bool is_copy(int step) const { return step_of(step).kind == StepKind::copy; }

  /// From when `step` may start to its first byte. `before`: the step of its queue that was the
  /// last to end, or -1. A copy engine and a kernel hear of each other as of events.
  [[nodiscard]] double lead_us(int step, int before) {
    const Costs& costs = node_.costs;
    if (!is_copy(step)) {
      const bool follows_copy = before >= 0 && is_copy(before) && !state(step).waits_on_stream;
      return costs.kernel_start_us + (follows_copy ? costs.event_us : 0);
    }
    if (state(step).waits_on_stream || (before >= 0 && !is_copy(before)))
      return costs.event_us + costs.copy_start_us;
    return before >= 0 ? costs.copy_gap_us : costs.copy_start_us;
  }

  /// All that the step waits for has ended. `before` as of lead_us().
  void start(int step, double now, int before) {
    const Costs& costs = node_.costs;
    const double lead = lead_us(step, before);
    const double at = std::max(now, state(step).ready) + lead;
    starting_.add(at, step);
    if (halts_ && step_of(step).link >= 0)
      halting_.add(std::max(now, at - costs.copy_handover_us), step);
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
  [[nodiscard]] double halted_until(int link) const {
    double until = 0;
    for_each_resource(
        link, [&](std::size_t resource) { until = std::max(until, halted_until_[resource]); });
    return until;
  }

  /// Finds what of flowing_ is not halted, its rates, and when the first halt of the rest ends.
  void find_moving() {
    moving_.clear();
    rates_.clear();
    halt_ends_ = kNever;
    for (const int step : flowing_) {
      const int link = link_of(step);
      if (const double until = halts_ ? halted_until(link) : 0; until > now_) {
        halt_ends_ = std::min(halt_ends_, until);
        continue;
      }
      moving_.push_back(step);
      rates_.add(link);
    }
    rates_.share();
  }

  [[nodiscard]] double next_event() {
    double next = std::min({starting_.time(), ending_.time(), halting_.time(), halt_ends_});
    for (const int step : moving_)
      next =
          std::min(next, now_ + state(step).left / (rates_.gbps(link_of(step)) * kBytesPerGbpsUs));
    return next;
  }

  void move_to(double time) {
    for (const int step : moving_)
      state(step).left -= rates_.gbps(link_of(step)) * kBytesPerGbpsUs * (time - now_);
    now_ = time;
  }

  /// Starts and ends what is due now.
  void settle() {
    ended_.clear();
    std::erase_if(flowing_, [&](int step) {
      if (state(step).left > kMinBytes) return false;
      ended_.push_back(step);
      return true;
    });
    for (int step = ending_.take(now_); step >= 0; step = ending_.take(now_))
      ended_.push_back(step);
    for (const int step : ended_) end(step);
    for (int step = halting_.take(now_); step >= 0; step = halting_.take(now_)) halt(step);
    for (int step = starting_.take(now_); step >= 0; step = starting_.take(now_)) begin(step);
    std::ranges::sort(flowing_);
  }

  void begin(int index) {
    state(index).began = now_;
    if (is_same_communicator(index)) {
      for_each_resource(link_of(index), [&](std::size_t resource) { ++in_use_[resource]; });
      flowing_.push_back(index);
      return;
    }
    const Step& step = step_of(index);
    if (step.link >= 0) {
      state(index).left = static_cast<double>(step.bytes);
      flowing_.push_back(index);
      return;
    }
    std::uint64_t bytes = step.bytes;
    for (const Place& place : schedule_.reads(step)) bytes += bytes_of(schedule_, step, place);
    ending_.add(now_ + transfer_us(bytes, node_.costs.memory_gbps), index);
  }

  void end(int index) {
    state(index).ended = now_;
    if (halts_ && link_of(index) >= 0)
      for_each_resource(link_of(index), [&](std::size_t resource) { --in_use_[resource]; });
    if (is_same_communicator(index)) return;
    const Costs& costs = node_.costs;
    const Step& step = step_of(index);
    const std::uint32_t listeners = state(index).listeners;
    const auto place = static_cast<std::size_t>(index);
    for (std::size_t i = dependents_begin_[place]; i < dependents_begin_[place + 1]; ++i) {
      const int other = dependents_[i];
      double hop = costs.event_us;
      if (const int listener = step_of(other).rank; listener != step.rank) {
        // One value after another.
        const int before = std::popcount(listeners & ((std::uint32_t{1} << listener) - 1));
        hop += costs.flag_us + costs.event_us * before;
        if (state(other).waits_aside) hop += costs.event_us + costs.kernel_start_us;
      }
      release(other, now_ + hop, -1);
    }
    const int behind = state(index).behind;
    if (behind < 0) return;
    double at = now_ + costs.event_us * std::popcount(listeners);
    if (state(behind).waits_on_stream)
      at += costs.kernel_start_us + (is_copy(index) ? costs.event_us : 0);
    release(behind, at, index);
  }

  /// `step` hears at the time `at` of one that it waits for; `before`: that is the one before it on
  /// its queue, else -1.
  void release(int step, double at, int before) {
    State& waiting = state(step);
    const bool last = at >= waiting.ready;
    waiting.ready = std::max(waiting.ready, at);
    if (--waiting.waits == 0) start(step, now_, last ? before : -1);
  }

  const Node& node_;
  const CollectiveSchedule& schedule_;
  std::vector<State> steps_;
  std::vector<std::size_t> dependents_begin_;  // of each step, and the end of the last one's
  std::vector<int> dependents_;
  std::vector<int> besides_;  // links of what is next to the schedule: after its steps
  const bool halts_;
  std::vector<double> halted_until_;  // of each link, then of each port
  std::vector<int> in_use_;           // by link and port: copies, and what is next to them
  DueSteps halting_;
  DueSteps starting_;
  DueSteps ending_;           // reductions and copies within a memory
  std::vector<int> flowing_;  // copies over links
  std::vector<int> moving_;   // those of them that are not halted
  std::vector<int> ended_;
  LinkRates rates_;
  double halt_ends_ = kNever;
  double now_ = 0;
};

}  // namespace

ScheduleTime schedule_time(const Node& node, const CollectiveSchedule& schedule,
                           const Beside& beside) {
  runs.fetch_add(1, std::memory_order_relaxed);
  return Clockwork(node, schedule, beside).run();
}

std::uint64_t schedule_time_runs() noexcept { return runs.load(std::memory_order_relaxed); }

}  // namespace polypath
