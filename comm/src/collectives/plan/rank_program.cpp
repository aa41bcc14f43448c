#include "collectives/plan/rank_program.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace polypath {

namespace {

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

/// Whether a step is a copy to a relay or from one, or takes or sums what came over one.
bool serves_relays(const CollectiveSchedule& schedule, const Step& step) {
  const auto is_copy_over = [](const Step& copy) {
    return copy.kind == StepKind::copy &&
           (copy.to.buffer == BufferKind::relay || copy.from.buffer == BufferKind::relay);
  };
  return is_copy_over(step) || std::ranges::any_of(schedule.after(step), [&](int other) {
           return is_copy_over(schedule.steps[static_cast<std::size_t>(other)]);
         });
}

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
  constexpr auto kNone = std::numeric_limits<std::size_t>::max();
  std::size_t own_streams = 0;
  for (std::size_t queue = 0; queue < streams.size(); ++queue)
    own_streams = std::max(own_streams, static_cast<std::size_t>(streams[queue] + 1));
  // For each stream:
  std::vector<std::vector<std::uint64_t>> seen(own_streams);  // steps of each queue
  std::vector<std::uint32_t> credited(own_streams);           // bits: ranks
  std::vector<std::size_t> latest_told(own_streams, kNone);
  std::vector<std::vector<std::size_t>> behind(own_streams);  // the latest told of each stream
  std::vector<std::size_t> place(steps.size());               // of own steps
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (step.rank != rank) continue;
    RankStep rank_step;
    rank_step.index = static_cast<int>(i);
    rank_step.stream = streams[static_cast<std::size_t>(step.queue)];
    rank_step.is_onward = step.kind == StepKind::copy && step.from.buffer == BufferKind::relay;
    program.streams = std::max(program.streams, rank_step.stream + 1);
    const auto own = static_cast<std::size_t>(rank_step.stream);
    if (seen[own].empty()) {
      seen[own].resize(so_far.size(), 0);
      behind[own].resize(own_streams, kNone);
    }
    for (int other = 0; other < schedule.request.ranks(); ++other) {
      // Any rank may read host memory.
      const bool touches = step.to.buffer == BufferKind::host ||
                           (step.to.buffer == BufferKind::scratch && step.to.owner == other);
      const std::uint32_t bit = std::uint32_t{1} << other;
      if (!touches || other == rank || (credited[own] & bit) != 0) continue;
      credited[own] |= bit;
      rank_step.credits.push_back(other);
    }
    for (const int other : schedule.after(step)) {
      const Step& before = step_at(other);
      std::uint64_t& known = seen[own][static_cast<std::size_t>(before.queue)];
      const std::uint64_t target = number[static_cast<std::size_t>(other)];
      if (std::exchange(known, std::max(known, target)) >= target) continue;
      if (before.rank == rank) {
        const std::size_t at = place[static_cast<std::size_t>(other)];
        rank_step.after.push_back(at);
        program.steps[at].is_awaited = true;
      } else {
        rank_step.awaited.push_back(
            {before.rank, streams[static_cast<std::size_t>(before.queue)], target});
      }
    }
    for (std::size_t stream = 0; stream < own_streams && !rank_step.awaited.empty(); ++stream) {
      const std::size_t at = latest_told[stream];
      if (at == kNone || stream == own || std::exchange(behind[own][stream], at) == at) continue;
      rank_step.behind.push_back(at);
    }
    for (int listener = 0; listener < schedule.request.ranks(); ++listener)
      if ((listeners[i] >> listener & 1) != 0)
        rank_step.signals.push_back({listener, rank_step.stream, number[i]});
    if (!rank_step.signals.empty()) latest_told[own] = program.steps.size();
    if (!schedule.relays.empty()) {
      program.is_for_relays.resize(own_streams);
      if (serves_relays(schedule, step)) program.is_for_relays[own] = true;
    }
    place[i] = program.steps.size();
    program.steps.push_back(std::move(rank_step));
  }
  return program;
}

}  // namespace polypath
