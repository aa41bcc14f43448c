// Plans between the sizes of the table: no schedule is timed for a new count, what is run loses
// little against the plan that times them all, and at the sizes of the table nothing.
#include <gtest/gtest.h>

#include <thread>

#include "base/units.hpp"
#include "collectives/plan/copy_cost_table.hpp"
#include "collectives/plan/mixed_cost.hpp"
#include "collectives/plan/schedule_time.hpp"
#include "collectives/plan/schedules.hpp"
#include "known_node.hpp"
#include "plan_inputs.hpp"

namespace polypath {
namespace {

constexpr const char* kNodes[] = {"beluga",     "cedar",       "dgx-h200-x8",
                                  "gh200-quad", "hgx-h200-x4", "marenostrum5",
                                  "mist",       "narval",      "pcie-4gpu"};

CollectiveOptions options_with(CopyCostTable* table) {
  CollectiveOptions options;
  options.explain = false;
  options.table = table;
  return options;
}

CollectiveRequest allreduce(const Node& node, std::uint64_t bytes,
                            DataType type = DataType::float32) {
  return request_of_bytes(CollectiveOp::allreduce, type, bytes,
                          std::min(kMaxRanksPerNode, static_cast<int>(node.gpus.size())));
}

/// What the schedule of a plan takes that names only its parts.
double timed_us(const Node& node, const CollectivePlan& plan) {
  if (runs_by_kernels(plan.algorithm)) return plan.predicted_us;
  if (plan.algorithm != Algorithm::mixed)
    return schedule_time(node, make_collective_schedule(node, plan)).us;
  const std::uint64_t rest = plan.request.count - plan.host_count;
  return mixed_cost_of(node, {},
                       mixed_split(plan.request, rest * size_of(plan.request.type), plan.chunks),
                       plan.chunks)
      .us;
}

TEST(CopyCostTable, NewCount_TimesNoSchedule) {
  for (const char* name : kNodes) {
    SCOPED_TRACE(name);
    const Node node = known(name);
    CopyCostTable table(node, allreduce(node, 4).gpus);
    const CollectiveOptions options = options_with(&table);
    table.fill_allreduce(options);
    for (const std::uint64_t bytes : {3 * kMiB + 4, 5000012ul, 64 * kMiB, 64 * kMiB + 4,
                                      100000004ul, 700000012ul, kGiB + 4, 5 * kGiB}) {
      SCOPED_TRACE(bytes);
      const std::uint64_t before = schedule_time_runs();
      const CollectivePlan plan = plan_collective(node, allreduce(node, bytes), options);
      EXPECT_EQ(schedule_time_runs() - before, 0u);
      EXPECT_GT(timed_us(node, plan), 0);
    }
    // Few chunks: timing them is as cheap as a look-up.
    const std::uint64_t before = schedule_time_runs();
    static_cast<void>(plan_collective(node, allreduce(node, 64 * kKiB - 4), options));
    EXPECT_LE(schedule_time_runs() - before, 2u);
  }
}

/// Without a table, the same question has schedules timed: else the test above shows nothing.
TEST(CopyCostTable, WithoutTable_SchedulesAreTimed) {
  const Node node = known("narval");
  const std::uint64_t before = schedule_time_runs();
  static_cast<void>(plan_collective(node, allreduce(node, 100000004), options_with(nullptr)));
  EXPECT_GE(schedule_time_runs() - before, 10u);
}

TEST(CopyCostTable, PowerOfTwo_IsTheFastestPlan) {
  for (const char* name : {"narval", "mist", "pcie-4gpu"})
    for (const std::uint64_t bytes : {64 * kMiB, 512 * kMiB})
      for (const DataType type : {DataType::float32, DataType::bfloat16}) {
        SCOPED_TRACE(std::string(name) + " " + format_bytes(bytes));
        const Node node = known(name);
        const auto request = allreduce(node, bytes, type);
        CopyCostTable table(node, request.gpus);
        const CollectivePlan plan = plan_collective(node, request, options_with(&table));
        const CollectivePlan fastest = plan_collective(node, request, options_with(nullptr));
        EXPECT_EQ(plan.algorithm, fastest.algorithm);
        EXPECT_EQ(plan.predicted_us, fastest.predicted_us);
        EXPECT_EQ(plan.kernel, fastest.kernel);
        EXPECT_EQ(plan.host_count, fastest.host_count);
        EXPECT_EQ(plan.chunk_bytes, fastest.chunk_bytes);
        EXPECT_EQ(plan.lanes, fastest.lanes);
      }
}

TEST(CopyCostTable, OtherSizes_LoseLittle) {
  for (const char* name : {"narval", "gh200-quad", "mist", "pcie-4gpu"}) {
    const Node node = known(name);
    CopyCostTable table(node, allreduce(node, 4).gpus);
    Random random(20261127);
    double sum = 0;
    constexpr int kSizes = 6;
    for (int i = 0; i < kSizes; ++i) {
      const std::uint64_t bytes = (4 * kMiB << pick(random, 0, 6)) + random() % (4 * kMiB) / 4 * 4;
      SCOPED_TRACE(std::string(name) + " " + std::to_string(bytes));
      const auto request = allreduce(node, bytes);
      const CollectivePlan plan = plan_collective(node, request, options_with(&table));
      const double us = timed_us(node, plan);
      const double fastest = plan_collective(node, request, options_with(nullptr)).predicted_us;
      // Chunks that fit the memory of hosts at the size before, and not at the one after, are left
      // out between them.
      EXPECT_LE(us, 1.05 * fastest) << to_string(plan.algorithm);
      EXPECT_NEAR(us / plan.predicted_us, 1, 0.03);
      sum += us / fastest;
    }
    EXPECT_LE(sum / kSizes, 1.015) << name;
  }
}

/// Memory is short where the last chunk is no whole one.
TEST(CopyCostTable, Parts_FitIntoTheirMemory) {
  const Node node = known("narval");
  CopyCostTable table(node, allreduce(node, 4).gpus);
  Random random(7);
  for (int i = 0; i < 200; ++i) {
    const auto request = allreduce(node, (512 * kMiB + random() % kGiB) / 4 * 4);
    const CollectivePlan plan = plan_collective(node, request, options_with(&table));
    ASSERT_EQ(plan.algorithm, Algorithm::mixed);
    CollectiveRequest part = request;
    part.count = plan.host_count;
    const HostPartMemory memory = host_part_memory(node, part, plan.chunk_bytes);
    EXPECT_LE(memory.scratch_bytes, kMixedScratch) << request.bytes();
    EXPECT_LE(memory.host_bytes, kMixedHost) << request.bytes();
  }
}

TEST(CopyCostTable, QueryOrder_ChangesNoPlan) {
  const Node node = known("gh200-quad");
  const auto request = allreduce(node, 300000004);
  CopyCostTable filled(node, request.gpus);
  filled.fill_allreduce(options_with(&filled));
  CopyCostTable empty(node, request.gpus);
  std::vector<CollectivePlan> plans(2);
  {
    std::vector<std::jthread> threads;
    for (CollectivePlan& plan : plans)
      threads.emplace_back([&] { plan = plan_collective(node, request, options_with(&empty)); });
  }
  const CollectivePlan expected = plan_collective(node, request, options_with(&filled));
  for (const CollectivePlan& plan : plans) {
    EXPECT_EQ(plan.algorithm, expected.algorithm);
    EXPECT_EQ(plan.host_count, expected.host_count);
    EXPECT_EQ(plan.chunk_bytes, expected.chunk_bytes);
    EXPECT_EQ(plan.predicted_us, expected.predicted_us);
  }
}

TEST(CopyCostTable, Explained_NamesStages) {
  for (const char* name : {"narval", "mist"}) {
    const Node node = known(name);
    const auto request = allreduce(node, 300000004);
    CopyCostTable table(node, request.gpus);
    CollectiveOptions options = options_with(&table);
    const CollectivePlan plan = plan_collective(node, request, options);
    options.explain = true;
    const CollectivePlan explained = plan_collective(node, request, options);
    EXPECT_EQ(explained.algorithm, plan.algorithm);
    EXPECT_EQ(explained.host_count, plan.host_count);
    EXPECT_EQ(explained.chunk_bytes, plan.chunk_bytes);
    EXPECT_GE(explained.stages.size(), 2u);
  }
}

TEST(CopyCostTable, SameRanks_ShareTable) {
  const Node narval = known("narval");
  const auto table = CopyCostTable::shared(narval, {0, 1, 2, 3});
  EXPECT_EQ(CopyCostTable::shared(narval, {0, 1, 2, 3}), table);
  EXPECT_NE(CopyCostTable::shared(narval, {0, 1}), table);
  EXPECT_NE(CopyCostTable::shared(known("mist"), {0, 1, 2, 3}), table);
}

}  // namespace
}  // namespace polypath
