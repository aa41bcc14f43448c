// What every schedule must be, and its steps in an order that is random but for what it demands:
// what a dependency misses, some order shows.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "plan/schedule.hpp"
#include "plan_inputs.hpp"

namespace polypath {

/// A line a step, for failing tests.
inline std::string to_string(const Schedule& schedule) {
  const auto text = [](const Place& place) {
    constexpr std::array kNames{"in", "out", "scratch", "host"};
    return fmt::format("{}{}{}+{}", place.is_partial ? "partial " : "",
                       kNames.at(static_cast<std::size_t>(place.buffer)), place.owner,
                       place.offset);
  };
  std::string lines;
  for (const Step& step : schedule.steps) {
    lines += fmt::format("rank {} queue {} stage {} link {}: {} =", step.rank, step.queue,
                         step.stage, step.link, text(step.to));
    for (const Place& place : schedule.reads(step)) lines += " " + text(place);
    lines +=
        fmt::format(", {} bytes, after {}\n", step.bytes, fmt::join(schedule.after(step), " "));
  }
  return lines;
}

/// Steps wait for earlier ones of other queues, once for each queue; so there is no cycle.
inline void expect_ordered(const Schedule& schedule) {
  std::vector<bool> is_awaited(schedule.steps.size());
  int queues = 0;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    queues = std::max(queues, step.queue + 1);
    std::set<int> waited;
    for (const int other : schedule.after(step)) {
      ASSERT_GE(other, 0);
      ASSERT_LT(other, static_cast<int>(i));
      const int queue = schedule.steps[static_cast<std::size_t>(other)].queue;
      EXPECT_NE(queue, step.queue) << "step " << i;
      EXPECT_TRUE(waited.insert(queue).second) << "step " << i;
      is_awaited[static_cast<std::size_t>(other)] = true;
    }
  }
  EXPECT_EQ(schedule.queues, queues);
  for (std::size_t i = 0; i < schedule.steps.size(); ++i)
    EXPECT_EQ(schedule.steps[i].is_awaited, is_awaited[i]) << "step " << i;
}

/// Calls `execute` for each step, once its queue and what it waits for let it. Returns how many
/// steps had their turn: all, where there is no cycle.
template <typename Execute>
std::size_t run_in_any_order(const Schedule& schedule, Random& random, const Execute& execute) {
  const std::size_t count = schedule.steps.size();
  std::vector<std::set<int>> waits(count);
  std::vector<std::vector<int>> next(count);
  std::vector<int> last(static_cast<std::size_t>(schedule.queues), -1);
  for (std::size_t i = 0; i < count; ++i) {
    const Step& step = schedule.steps[i];
    for (const int other : schedule.after(step)) waits[i].insert(other);
    int& before = last[static_cast<std::size_t>(step.queue)];
    if (before >= 0) waits[i].insert(before);
    before = static_cast<int>(i);
    for (const int other : waits[i])
      next[static_cast<std::size_t>(other)].push_back(static_cast<int>(i));
  }
  std::vector<int> ready;
  for (std::size_t i = 0; i < count; ++i)
    if (waits[i].empty()) ready.push_back(static_cast<int>(i));
  std::size_t done = 0;
  while (!ready.empty()) {
    // Sometimes the newest, sometimes any: both far ahead and far after.
    const std::size_t which = random() % 3 == 0 ? ready.size() - 1 : random() % ready.size();
    const int index = ready[which];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(which));
    execute(schedule.steps[static_cast<std::size_t>(index)]);
    ++done;
    for (const int other : next[static_cast<std::size_t>(index)]) {
      auto& left = waits[static_cast<std::size_t>(other)];
      left.erase(index);
      if (left.empty()) ready.push_back(other);
    }
  }
  return done;
}

}  // namespace polypath
