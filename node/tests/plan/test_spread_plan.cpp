// Plans of spreads: which GPUs feed, what each carries, and what stays as many native copies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "base/units.hpp"
#include "plan/spread_plan.hpp"
#include "schedule_order.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

class SpreadPlanTest : public testing::Test {
 protected:
  static Node node_of(const std::string& name) {
    return read_node_file(std::string(NODES_DIR) + "/" + name + ".toml");
  }
  static double gbps(const SpreadPlan& plan) {
    return static_cast<double>(plan.bytes) / (plan.predicted_us * kBytesPerGbpsUs);
  }

  Node node = node_of("hgx-h200-x4");
  const MemoryId host = MemoryId::host(0);
  const std::vector<int> all{0, 1, 2, 3};
};

TEST_F(SpreadPlanTest, HostToAll_EachLinkFeedsAQuarter) {
  const SpreadTrees trees = make_spread_trees(node, host, all, 0);
  ASSERT_EQ(trees.trees.size(), 4u);
  EXPECT_DOUBLE_EQ(trees.native_gbps, 50.5);
  EXPECT_DOUBLE_EQ(trees.limit_gbps, 202);
  const SpreadPlan plan = plan_spread(node, trees, kGiB, 0);
  ASSERT_EQ(plan.shares.size(), 4u);
  for (const SpreadShare& share : plan.shares) EXPECT_EQ(share.bytes, kGiB / 4);
  EXPECT_GT(gbps(plan), 190);
  EXPECT_LT(gbps(plan), 202);
}

TEST_F(SpreadPlanTest, GpuToOthers_LeavesEachByteOnce) {
  const SpreadTrees trees = make_spread_trees(node, MemoryId::gpu(2), {0, 1, 3}, 0);
  EXPECT_DOUBLE_EQ(trees.native_gbps, 132);
  EXPECT_DOUBLE_EQ(trees.limit_gbps, 396);
  EXPECT_GT(gbps(plan_spread(node, trees, kGiB, 0)), 360);
}

TEST_F(SpreadPlanTest, Mesh_IsFedOverAllLinks) {
  node = node_of("narval");
  const SpreadTrees trees = make_spread_trees(node, host, all, 0);
  EXPECT_DOUBLE_EQ(trees.native_gbps, 22.25);
  EXPECT_DOUBLE_EQ(trees.limit_gbps, 89);
  EXPECT_GT(gbps(plan_spread(node, trees, kGiB, 0)), 85);
  const SpreadTrees from_gpu = make_spread_trees(node, MemoryId::gpu(0), {1, 2, 3}, 0);
  EXPECT_DOUBLE_EQ(from_gpu.native_gbps, 93);
  EXPECT_DOUBLE_EQ(from_gpu.limit_gbps, 279);
}

TEST_F(SpreadPlanTest, AnySize_IsCoveredOnce) {
  for (const char* const name : {"hgx-h200-x4", "dgx-h200-x8", "narval"}) {
    node = node_of(name);
    std::vector<int> gpus(node.gpus.size());
    std::iota(gpus.begin(), gpus.end(), 0);
    const SpreadTrees trees = make_spread_trees(node, host, gpus, 0);
    for (const std::uint64_t bytes :
         {12 * kMiB, 13 * kMiB + 1, 33 * kMiB - 4097, kGiB + 7, 64 * kGiB + 12345}) {
      SCOPED_TRACE(name + std::string(" ") + std::to_string(bytes));
      const SpreadPlan plan = plan_spread(node, trees, bytes, 0);
      ASSERT_FALSE(plan.native());
      std::uint64_t offset = 0;
      for (const SpreadShare& share : plan.shares) {
        EXPECT_EQ(share.offset, offset);
        offset += share.bytes;
        const std::uint64_t chunks = (share.bytes + share.chunk_bytes - 1) / share.chunk_bytes;
        EXPECT_LE(chunks, static_cast<std::uint64_t>(plan.chunks));
      }
      EXPECT_EQ(offset, bytes);
      EXPECT_LE(plan.chunks, kMaxSpreadChunks);
      EXPECT_LT(plan.predicted_us, plan.native_us);
    }
  }
}

TEST_F(SpreadPlanTest, SmallOrAlone_StaysNative) {
  const SpreadTrees trees = make_spread_trees(node, host, all, 0);
  EXPECT_TRUE(plan_spread(node, trees, 256 * kKiB, 0).native());
  EXPECT_TRUE(plan_spread(node, trees, 0, 0).native());
  EXPECT_EQ(plan_spread(node, trees, 256 * kKiB, 0, true).reason,
            "each GPU's own copy ends as soon");
  const SpreadTrees single = make_spread_trees(node, host, {1}, 0);
  EXPECT_TRUE(single.trees.empty());
  EXPECT_TRUE(plan_spread(node, single, kGiB, 0).native());
}

TEST_F(SpreadPlanTest, LeftOutFeeder_FeedsNothing) {
  const SpreadTrees trees = make_spread_trees(node, host, all, 0b0100);
  ASSERT_EQ(trees.trees.size(), 3u);
  for (const SpreadTree& tree : trees.trees) {
    EXPECT_NE(tree.gpu, 2);
    EXPECT_EQ(tree.forward.size(), 3u) << "it receives all";
  }
  EXPECT_FALSE(plan_spread(node, trees, kGiB, 0).native());
  EXPECT_TRUE(make_spread_trees(node, host, all, 0b1111).trees.empty());
}

TEST_F(SpreadPlanTest, NoPeerAccess_HasNoTrees) {
  for (Link& link : node.links)
    if (link.from.is_gpu() && link.to.is_gpu()) link.type = LinkType::bounce;
  const SpreadTrees trees = make_spread_trees(node, host, all, 0);
  EXPECT_TRUE(trees.trees.empty());
  EXPECT_EQ(plan_spread(node, trees, kGiB, 0, true).reason, "no GPU may send on what it fetches");
}

TEST_F(SpreadPlanTest, ChunkSize_IsFollowed) {
  const SpreadTrees trees = make_spread_trees(node, host, all, 0);
  EXPECT_EQ(plan_spread(node, trees, kGiB, 4 * kMiB).chunks, 64);
  EXPECT_EQ(plan_spread(node, trees, kGiB, 64 * kKiB).chunks, kMaxSpreadChunks);
}

/// Runs the copies of a spread of some bytes in a random order. Whether each byte is written once
/// on each GPU, and is right; `change` may spoil the schedule.
bool is_spread(const Node& node, std::uint64_t seed, const std::function<void(Schedule&)>& change) {
  Random random(seed);
  const SpreadTrees trees = make_spread_trees(
      node, random() % 2 == 0 ? MemoryId::host(0) : MemoryId::gpu(3), {0, 1, 2}, random() % 4);
  SpreadPlan plan;
  for (std::size_t tree = 0; tree < trees.trees.size(); ++tree) {
    SpreadShare share{.tree = tree, .offset = plan.bytes};
    share.bytes = static_cast<std::uint64_t>(pick(random, 1, 300));
    share.chunk_bytes = static_cast<std::uint64_t>(pick(random, 10, 100));
    plan.chunks = std::max(
        plan.chunks, static_cast<int>((share.bytes + share.chunk_bytes - 1) / share.chunk_bytes));
    plan.bytes += share.bytes;
    plan.shares.push_back(share);
  }
  Schedule schedule = make_schedule(trees, plan);
  expect_ordered(schedule);
  change(schedule);

  std::vector<int> source(plan.bytes);
  std::iota(source.begin(), source.end(), 1);
  std::map<int, std::vector<int>> destinations;
  std::map<int, std::vector<int>> written;
  for (const int gpu : trees.gpus) {
    destinations[gpu].resize(source.size(), 0);
    written[gpu].resize(source.size(), 0);
  }
  const std::size_t done = run_in_any_order(schedule, random, [&](const Step& step) {
    const std::vector<int>& from =
        step.from.buffer == BufferKind::input ? source : destinations.at(step.from.owner);
    for (std::uint64_t i = 0; i < step.bytes; ++i) {
      destinations.at(step.to.owner).at(step.to.offset + i) = from.at(step.from.offset + i);
      ++written.at(step.to.owner).at(step.to.offset + i);
    }
  });
  return done == schedule.steps.size() && std::ranges::all_of(trees.gpus, [&](int gpu) {
           return destinations[gpu] == source &&
                  std::ranges::all_of(written[gpu], [](int times) { return times == 1; });
         });
}

TEST_F(SpreadPlanTest, Schedule_BringsEveryByteOnceToAll) {
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    ASSERT_TRUE(is_spread(node, seed, [](Schedule&) {})) << "seed " << seed;
}

TEST_F(SpreadPlanTest, SpoiltSchedule_IsFound) {
  const auto failures = [&](const std::function<void(Schedule&)>& change) {
    int count = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) count += is_spread(node, seed, change) ? 0 : 1;
    return count;
  };
  EXPECT_GE(failures([](Schedule& schedule) { schedule.steps.back().after.count = 0; }), 5);
  EXPECT_EQ(failures([](Schedule& schedule) { schedule.steps.pop_back(); }), 50);
  EXPECT_EQ(failures([](Schedule& schedule) { --schedule.steps.back().bytes; }), 50);
  EXPECT_EQ(failures([](Schedule& schedule) {
              schedule.steps.back().to.owner = schedule.steps.back().from.owner;
            }),
            50);
}

}  // namespace
}  // namespace polypath
