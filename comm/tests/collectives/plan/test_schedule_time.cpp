// The list schedule: times that can be counted by hand, and bounds that hold for every schedule.
#include <gtest/gtest.h>

#include <array>

#include "base/units.hpp"
#include "collectives/plan/kernel_cost.hpp"
#include "collectives/plan/link_rates.hpp"
#include "collectives/plan/schedule_time.hpp"
#include "collectives/plan/schedules.hpp"
#include "plan/flow.hpp"
#include "plan_inputs.hpp"

namespace polypath {
namespace {

/// Costs that are easy to add.
Node plain_mesh() {
  Node node = mesh_node();
  node.costs = {};
  node.costs.copy_issue_us = 1;
  node.costs.call_us = 0;
  node.costs.launch_us = 4;
  node.costs.value_us = 1;
  node.costs.copy_start_us = 10;
  node.costs.copy_gap_us = 3;
  node.costs.kernel_start_us = 7;
  node.costs.event_us = 2;
  node.costs.flag_us = 5;
  node.costs.memory_gbps = 300;
  return node;
}

/// To the output of another rank, which needs no leave of it.
Step copy_of(const Node& node, int rank, int to, std::uint64_t bytes, int queue) {
  Step step;
  step.rank = rank;
  step.link = node.find_link(MemoryId::gpu(rank), MemoryId::gpu(to)).value();
  step.from.owner = rank;
  step.to = {.buffer = BufferKind::output, .owner = to};
  step.bytes = bytes;
  step.queue = queue;
  return step;
}

CollectiveSchedule schedule_of(const std::vector<Step>& steps) {
  CollectiveSchedule schedule;
  schedule.request = request_of_bytes(CollectiveOp::allreduce, DataType::float32, 4, 4);
  schedule.stages = {"stage"};
  schedule.scratch_bytes = 1 << 20;
  for (const Step& step : steps) schedule.add(step, {});
  return schedule;
}

TEST(ScheduleTime, SingleCopy_StartsAndFlows) {
  const Node node = plain_mesh();
  // 9e6 bytes at 90 GB/s: 100 us.
  const auto time = schedule_time(node, schedule_of({copy_of(node, 0, 1, 9000000, 0)}));
  EXPECT_NEAR(time.us, 1 + 10 + 100, 1e-6);
  EXPECT_NEAR(time.stage_us.front(), 100, 1e-6);
}

TEST(ScheduleTime, CopiesOfAQueueFollowEachOtherAfterAGap) {
  const Node node = plain_mesh();
  const auto time = schedule_time(
      node, schedule_of({copy_of(node, 0, 1, 9000000, 0), copy_of(node, 0, 1, 9000000, 0)}));
  EXPECT_NEAR(time.us, 1 + 10 + 100 + 3 + 100, 1e-6);
}

TEST(ScheduleTime, CopiesOfTwoQueuesShareTheirLink) {
  const Node node = plain_mesh();
  const auto time = schedule_time(
      node, schedule_of({copy_of(node, 0, 1, 9000000, 0), copy_of(node, 0, 1, 9000000, 1)}));
  // The second starts 1 us later, both end when 200 us of bytes have flowed.
  EXPECT_NEAR(time.us, 1 + 10 + 200, 1e-6);
}

TEST(ScheduleTime, AnotherRankWaitsForTheFlagAsWell) {
  const Node node = plain_mesh();
  Step sum;
  sum.kind = StepKind::reduce;
  sum.rank = 1;
  sum.to = {.buffer = BufferKind::output, .owner = 1};
  sum.bytes = 9000000;
  sum.queue = 2;
  CollectiveSchedule schedule = schedule_of({copy_of(node, 0, 1, 9000000, 0)});
  const std::array from{Place{.buffer = BufferKind::scratch, .owner = 1}, Place{.owner = 1}};
  schedule.add(sum, std::array{0}, from);
  const auto time = schedule_time(node, schedule);
  // The copy and its value are issued, copied and told; three times 9e6 bytes at 300 GB/s.
  EXPECT_NEAR(time.us, 2 + 10 + 100 + 2 + 5 + 7 + 90, 1e-6);
}

/// A kernel waits for the rank that has read the scratch before.
TEST(ScheduleTime, FirstCopyToScratch_FollowsAKernel) {
  const Node node = plain_mesh();
  Step copy = copy_of(node, 0, 1, 9000000, 0);
  copy.to.buffer = BufferKind::scratch;
  const auto time = schedule_time(node, schedule_of({copy, copy}));
  EXPECT_NEAR(time.us, 5 + 7 + 2 + 10 + 100 + 3 + 100, 1e-6);
}

/// Two copies of rank 0 on one queue; the second one needs a copy of rank 1, which ends long before.
CollectiveSchedule copies_with_exchange(const Node& node) {
  CollectiveSchedule schedule =
      schedule_of({copy_of(node, 0, 1, 9000000, 0), copy_of(node, 1, 0, 90000, 1)});
  schedule.add(copy_of(node, 0, 1, 9000000, 0), std::array{1});
  return schedule;
}

TEST(ScheduleTime, CopyThatHears_FollowsAKernel) {
  const Node node = plain_mesh();
  EXPECT_NEAR(schedule_time(node, copies_with_exchange(node)).us,
              1 + 10 + 100 + (2 + 7 + 2 + 10) + 100, 1e-6);
}

TEST(ScheduleTime, CopyThatHearsAside_FollowsCopyBefore) {
  const Node node = plain_mesh();
  CollectiveSchedule schedule = copies_with_exchange(node);
  schedule.waits_aside = true;
  EXPECT_NEAR(schedule_time(node, schedule).us, 1 + 10 + 100 + 3 + 100, 1e-6);
}

TEST(ScheduleTime, CopyAfterOneThatTells_WaitsForTheValue) {
  const Node node = plain_mesh();
  CollectiveSchedule schedule =
      schedule_of({copy_of(node, 0, 1, 9000000, 0), copy_of(node, 0, 1, 9000000, 0)});
  schedule.add(copy_of(node, 1, 0, 90000, 1), std::array{0});
  EXPECT_NEAR(schedule_time(node, schedule).us, 2 + 10 + 100 + (2 + 3) + 100, 1e-6);
}

TEST(ScheduleTime, TimeIsNeverBelowTheLinkTime) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Node node = random_node(random);
    const auto request =
        request_of_bytes(CollectiveOp::allreduce, DataType::float32, 1 + random() % (64 * kMiB),
                         static_cast<int>(node.gpus.size()));
    const auto chunk = std::uint64_t{1} << pick(random, 18, 24);
    for (const auto& schedule :
         {flat_schedule(node, request, chunk, false), flat_schedule(node, request, chunk, true),
          ring_schedule(node, request, best_ring(node, request), chunk)}) {
      LinkBytes bytes(node.links.size(), 0);
      for (const Step& step : schedule.steps)
        if (step.link >= 0)
          bytes[static_cast<std::size_t>(step.link)] += static_cast<double>(step.bytes);
      const ScheduleTime time = schedule_time(node, schedule);
      EXPECT_GE(time.us, drain(node, bytes, 1).us);
      for (const double stage : time.stage_us) EXPECT_LE(stage, time.us);
      EXPECT_EQ(time.us, schedule_time(node, schedule).us);
    }
  }
}

TEST(LinkRates, Copies_GetTheFairRates) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Node node = random_node(random);
    LinkRates rates(node);
    for (int round = 0; round < 4; ++round) {  // the memory of the round before is used again
      std::vector<int> links;
      for (int i = pick(random, 1, 12); i > 0; --i)
        links.push_back(pick(random, 0, static_cast<int>(node.links.size()) - 1));
      Demand demand;
      rates.clear();
      for (const int link : links) {
        demand.routes.push_back({RouteKind::direct, {}, {link}});
        rates.add(link);
      }
      rates.share();
      const std::vector<double> fair = fair_rates(node, {demand}).front();
      for (std::size_t i = 0; i < links.size(); ++i)
        EXPECT_DOUBLE_EQ(rates.gbps(links[i]), fair[i]);
    }
  }
}

}  // namespace
}  // namespace polypath
