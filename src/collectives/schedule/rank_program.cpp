#include "collectives/schedule/rank_program.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace polypath {

namespace {

/// Of each queue which stream of its rank it is: in the order of their first steps.
std::vector<int> streams_by_queue(const CollectiveSchedule& schedule) {
  std::vector<int> streams(static_cast<std::size_t>(schedule.queues), -1);
  std::vector<int> of_rank(static_cast<std::size_t>(schedule.request.ranks()), 0);
  for (const CollectiveStep& step : schedule.steps) {
    int& stream = streams[static_cast<std::size_t>(step.queue)];
    if (stream < 0) stream = of_rank[static_cast<std::size_t>(step.rank)]++;
  }
  return streams;
}

}  // namespace

int streams_of(const CollectiveSchedule& schedule) {
  const std::vector<int> streams = streams_by_queue(schedule);
  return streams.empty() ? 0 : 1 + *std::ranges::max_element(streams);
}

RankProgram program_of(const CollectiveSchedule& schedule, int rank) {
  const auto& steps = schedule.steps;
  const auto step_at = [&](int i) -> const CollectiveStep& {
    return steps[static_cast<std::size_t>(i)];
  };
  // Of each step its number in its queue, from 1, and whom it is to tell.
  std::vector<std::uint64_t> number(steps.size());
  std::vector<std::uint64_t> so_far(static_cast<std::size_t>(schedule.queues), 0);
  std::vector<std::set<int>> listeners(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    number[i] = ++so_far[static_cast<std::size_t>(steps[i].queue)];
    for (const int other : steps[i].after)
      if (step_at(other).rank != steps[i].rank)
        listeners[static_cast<std::size_t>(other)].insert(steps[i].rank);
  }

  RankProgram program;
  program.rank = rank;
  const std::vector<int> streams = streams_by_queue(schedule);
  std::map<std::pair<int, int>, std::uint64_t> seen;  // by stream and queue: steps
  std::set<std::pair<int, int>> credited;             // by stream and rank
  std::map<int, std::size_t> place;                   // of own steps
  std::map<int, std::size_t> latest_told;             // by stream
  std::map<std::pair<int, int>, std::size_t> behind;  // by stream: the latest told of another
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const CollectiveStep& step = steps[i];
    if (step.rank != rank) continue;
    RankStep mine;
    mine.index = static_cast<int>(i);
    mine.stream = streams[static_cast<std::size_t>(step.queue)];
    program.streams = std::max(program.streams, mine.stream + 1);
    for (int other = 0; other < schedule.request.ranks(); ++other) {
      // Host memory may be read by anybody.
      const bool touches = step.to.buffer == CollectiveBuffer::host ||
                           (step.to.buffer == CollectiveBuffer::scratch && step.to.rank == other);
      if (touches && other != rank && credited.emplace(mine.stream, other).second)
        mine.credits.push_back(other);
    }
    for (const int other : step.after) {
      const CollectiveStep& before = step_at(other);
      std::uint64_t& known = seen[{mine.stream, before.queue}];
      const std::uint64_t wanted = number[static_cast<std::size_t>(other)];
      if (std::exchange(known, std::max(known, wanted)) >= wanted) continue;
      if (before.rank == rank) {
        const std::size_t at = place.at(other);
        mine.after.push_back(at);
        program.steps[at].is_awaited = true;
      } else {
        mine.awaited.push_back(
            {before.rank, streams[static_cast<std::size_t>(before.queue)], wanted});
      }
    }
    for (const auto& [stream, at] : latest_told) {
      if (mine.awaited.empty() || stream == mine.stream) continue;
      const auto [known, is_new] = behind.try_emplace({mine.stream, stream}, at);
      if (!is_new && std::exchange(known->second, at) == at) continue;
      mine.behind.push_back(at);
    }
    for (const int listener : listeners[i]) mine.told.push_back({listener, mine.stream, number[i]});
    if (!mine.told.empty()) latest_told[mine.stream] = program.steps.size();
    place.emplace(static_cast<int>(i), program.steps.size());
    program.steps.push_back(std::move(mine));
  }
  return program;
}

}  // namespace polypath
