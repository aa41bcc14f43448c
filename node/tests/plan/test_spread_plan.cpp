// Plans of spreads: which GPUs feed, what each carries, and what stays as many native copies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/units.hpp"
#include "plan/spread_plan.hpp"
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

}  // namespace
}  // namespace polypath
