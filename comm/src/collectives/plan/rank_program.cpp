#include "collectives/plan/rank_program.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace polypath {

namespace {

/// No step of a program is there.
constexpr std::size_t kNoPlace = std::numeric_limits<std::size_t>::max();

/// For each queue the stream of its rank: in the order of their first steps.
std::vector<int> streams_by_queue(const CollectiveSchedule& schedule) {
  std::vector<int> streams(static_cast<std::size_t>(schedule.queues), -1);
  std::vector<int> of_rank(static_cast<std::size_t>(schedule.request.ranks()), 0);
  for (const Step& step : schedule.steps) {
    int& stream = streams[static_cast<std::size_t>(step.queue)];
    if (stream < 0) stream = of_rank[static_cast<std::size_t>(step.rank)]++;
  }
  return streams;
}

/// The steps of one rank that have waited aside, by what they waited for.
class Waiters {
 public:
  Waiters(std::size_t queues, std::size_t ranks) : by_queue_(queues), by_rank_(ranks, kNobody) {}

  /// What a stream has waited for.
  struct Known {
    std::vector<std::uint64_t> steps;  ///< of each queue
    std::uint32_t credited = 0;        ///< bits: ranks
  };
  /// What a step waits for: steps of queues, and ranks.
  struct Needs {
    std::vector<std::pair<std::size_t, std::uint64_t>> steps;
    std::uint32_t credits = 0;
    [[nodiscard]] bool empty() const { return steps.empty() && credits == 0; }
  };

  /// The places of steps that have waited for all of it and for no more than `known`, which has it;
  /// empty: there are none.
  [[nodiscard]] std::vector<std::size_t> find(const Needs& needs, const Known& known) const {
    std::vector<std::size_t> waiters;
    const auto has = [&](std::size_t waiter) {
      if (waiter == kNobody || !is_within(needs_of(waiter), known)) return false;
      if (std::ranges::find(waiters, waiter) == waiters.end()) waiters.push_back(waiter);
      return true;
    };
    for (const auto& [queue, steps] : needs.steps)
      if (by_queue_[queue].steps < steps || !has(by_queue_[queue].waiter)) return {};
    for (std::size_t rank = 0; rank < by_rank_.size(); ++rank)
      if ((needs.credits >> rank & 1) != 0 && !has(by_rank_[rank])) return {};
    return waiters;
  }
  void add(std::size_t waiter, const Needs& needs) {
    for (const auto& [queue, steps] : needs.steps)
      if (by_queue_[queue].steps < steps) by_queue_[queue] = {waiter, steps};
    for (std::size_t rank = 0; rank < by_rank_.size(); ++rank)
      if ((needs.credits >> rank & 1) != 0 && by_rank_[rank] == kNobody) by_rank_[rank] = waiter;
    needs_.emplace_back(waiter, needs);
  }

 private:
  static constexpr std::size_t kNobody = kNoPlace;
  struct Latest {
    std::size_t waiter = kNobody;
    std::uint64_t steps = 0;
  };

  static bool is_within(const Needs& needs, const Known& known) {
    return (needs.credits & ~known.credited) == 0 &&
           std::ranges::all_of(needs.steps, [&](const auto& need) {
             return need.second <= known.steps[need.first];
           });
  }
  [[nodiscard]] const Needs& needs_of(std::size_t waiter) const {
    return std::ranges::lower_bound(needs_, waiter, {}, &std::pair<std::size_t, Needs>::first)
        ->second;
  }

  std::vector<Latest> by_queue_;
  std::vector<std::size_t> by_rank_;
  std::vector<std::pair<std::size_t, Needs>> needs_;  // by place
};

}  // namespace

int streams_of(const CollectiveSchedule& schedule) {
  const std::vector<int> streams = streams_by_queue(schedule);
  return streams.empty() ? 0 : 1 + *std::ranges::max_element(streams);
}

RankProgram program_of(const CollectiveSchedule& schedule, int rank) {
  const auto& steps = schedule.steps;
  const auto step_at = [&](int i) -> const Step& { return steps[static_cast<std::size_t>(i)]; };
  // For each step its number in its queue, from 1, and the rank that it signals.
  std::vector<std::uint64_t> number(steps.size());
  std::vector<std::uint64_t> so_far(static_cast<std::size_t>(schedule.queues), 0);
  std::vector<std::uint32_t> listeners(steps.size());  // bits: ranks
  static_assert(kMaxRanksPerNode <= 32);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    number[i] = ++so_far[static_cast<std::size_t>(steps[i].queue)];
    for (const int other : schedule.after(steps[i]))
      if (step_at(other).rank != steps[i].rank)
        listeners[static_cast<std::size_t>(other)] |= std::uint32_t{1} << steps[i].rank;
  }

  RankProgram program;
  program.rank = rank;
  const std::vector<int> streams = streams_by_queue(schedule);
  std::size_t own_streams = 0;
  for (std::size_t queue = 0; queue < streams.size(); ++queue)
    own_streams = std::max(own_streams, static_cast<std::size_t>(streams[queue] + 1));
  // For each stream:
  std::vector<Waiters::Known> known(own_streams);
  std::vector<std::size_t> latest_told(own_streams, kNoPlace);
  std::vector<std::vector<std::size_t>> behind(own_streams);  // the latest told of each stream
  std::vector<std::size_t> place(steps.size());               // of own steps
  Waiters waiters(so_far.size(), static_cast<std::size_t>(schedule.request.ranks()));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (step.rank != rank) continue;
    RankStep rank_step;
    rank_step.index = static_cast<int>(i);
    rank_step.stream = streams[static_cast<std::size_t>(step.queue)];
    program.streams = std::max(program.streams, rank_step.stream + 1);
    const auto own = static_cast<std::size_t>(rank_step.stream);
    if (known[own].steps.empty()) {
      known[own].steps.resize(so_far.size(), 0);
      behind[own].resize(own_streams, kNoPlace);
    }
    Waiters::Needs needs;
    for (int other = 0; other < schedule.request.ranks(); ++other) {
      // Any rank may read host memory.
      const bool touches = step.to.buffer == BufferKind::host ||
                           (step.to.buffer == BufferKind::scratch && step.to.owner == other);
      const std::uint32_t bit = std::uint32_t{1} << other;
      if (!touches || other == rank || (known[own].credited & bit) != 0) continue;
      known[own].credited |= bit;
      needs.credits |= bit;
      rank_step.credits.push_back(other);
    }
    for (const int other : schedule.after(step)) {
      const Step& before = step_at(other);
      const auto queue = static_cast<std::size_t>(before.queue);
      std::uint64_t& seen = known[own].steps[queue];
      const std::uint64_t target = number[static_cast<std::size_t>(other)];
      if (std::exchange(seen, std::max(seen, target)) >= target) continue;
      if (before.rank == rank) {
        const std::size_t at = place[static_cast<std::size_t>(other)];
        rank_step.after.push_back(at);
        program.steps[at].is_awaited = true;
      } else {
        rank_step.awaited.push_back({before.rank, streams[queue], target});
        needs.steps.emplace_back(queue, target);
      }
    }
    if (schedule.waits_aside && !needs.empty()) {
      rank_step.heard_by = waiters.find(needs, known[own]);
      if (rank_step.heard_by.empty()) waiters.add(program.steps.size(), needs);
    }
    for (std::size_t stream = 0; stream < own_streams && !rank_step.awaited.empty(); ++stream) {
      const std::size_t at = latest_told[stream];
      if (at == kNoPlace || stream == own || std::exchange(behind[own][stream], at) == at) continue;
      rank_step.behind.push_back(at);
    }
    for (int listener = 0; listener < schedule.request.ranks(); ++listener)
      if ((listeners[i] >> listener & 1) != 0)
        rank_step.signals.push_back({listener, rank_step.stream, number[i]});
    if (!rank_step.signals.empty()) latest_told[own] = program.steps.size();
    place[i] = program.steps.size();
    program.steps.push_back(std::move(rank_step));
  }
  return program;
}

}  // namespace polypath
