// Plans of pageable memory: the threads' rates, the routes that they fill, and what stays native.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/cpus.hpp"
#include "base/units.hpp"
#include "plan/pageable_plan.hpp"
#include "plan/plan_maker.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

class PageablePlanTest : public testing::Test {
 protected:
  [[nodiscard]] PageablePlan plan(bool is_to_gpu, std::uint64_t bytes, int threads) const {
    const MemoryId gpu = MemoryId::gpu(0);
    const MemoryId host = MemoryId::host(0);
    const Request request{is_to_gpu ? host : gpu, is_to_gpu ? gpu : host, bytes};
    return make_pageable_plan(node, request, pinned(request), threads);
  }
  [[nodiscard]] TransferPlan pinned(Request request) const {
    request.bytes = kGiB;
    const PlanOptions options;
    const RouteSets sets = make_route_sets(node, {request}, options.filter);
    return make_plan(node, sets, {request}, options).transfers.front();
  }

  Node node = read_node_file(NODES_DIR "/hgx-h200-x4.toml");
};

TEST_F(PageablePlanTest, Threads_ReachTheMeasuredRates) {
  // 4 x H200, docs/pageable.md.
  for (const auto& [threads, gbps] :
       {std::pair{1, 10.8}, {2, 21.5}, {4, 38.0}, {8, 65.0}, {16, 102.0}, {32, 142.0}})
    EXPECT_NEAR(host_copy_gbps(node.costs, ThreadWork::to_gpu, threads), gbps, 0.06 * gbps)
        << threads;
  EXPECT_EQ(host_copy_gbps(node.costs, ThreadWork::to_gpu, 0), 0);
}

// A thread reads a file at half the rate of memory: as many as fill the link take part.
TEST_F(PageablePlanTest, File_TakesMoreThreadsThanMemory) {
  node.costs.thread_read_gbps = 4;
  const Request request{MemoryId::host(0), MemoryId::gpu(0), kGiB};
  TransferPlan own_link = pinned(request);
  std::erase_if(own_link.routes, [](const RouteShare& share) { return share.route.staged(); });
  const auto plan_of = [&](bool is_file) {
    return make_pageable_plan(node, request, own_link, 16, is_file);
  };
  EXPECT_LT(plan_of(false).threads, 16);
  EXPECT_EQ(plan_of(false).chunk_bytes, pageable_slot_bytes(16)) << "small ones cost calls";
  EXPECT_EQ(plan_of(true).threads, 16);
  EXPECT_LT(plan_of(true).host_gbps, plan_of(false).host_gbps * 2);
  EXPECT_NE(plan_of(true).plan.reason.find("read a file"), std::string::npos);
}

TEST_F(PageablePlanTest, MoreThreads_FillMoreRoutes) {
  const auto routes = [&](int threads) { return plan(true, kGiB, threads).routes().size(); };
  EXPECT_EQ(routes(2), 1u);
  EXPECT_EQ(routes(4), 1u) << "one link carries what four threads copy";
  EXPECT_EQ(routes(8), 2u);
  EXPECT_EQ(routes(16), 3u);
  EXPECT_EQ(routes(64), 4u);
}

TEST_F(PageablePlanTest, AnySize_IsCoveredOnce) {
  for (const bool is_to_gpu : {true, false})
    for (const std::uint64_t bytes : {8 * kMiB, 15 * kMiB + 1, 33 * kMiB - 4097, 3 * kGiB + 7}) {
      constexpr int kThreads = 16;
      const PageablePlan result = plan(is_to_gpu, bytes, kThreads);
      ASSERT_FALSE(result.native());
      std::uint64_t offset = 0;
      for (const RouteShare& share : result.routes()) {
        EXPECT_EQ(share.offset, offset);
        offset += share.bytes;
      }
      EXPECT_EQ(offset, bytes);
      EXPECT_LE(result.chunk_bytes, pageable_slot_bytes(kThreads));
      EXPECT_EQ(result.route_of_thread.size(), static_cast<std::size_t>(result.threads));
      for (std::size_t r = 0; r < result.routes().size(); ++r)
        EXPECT_NE(std::ranges::count(result.route_of_thread, static_cast<int>(r)), 0);
      EXPECT_LT(result.plan.predicted_us, result.plan.native_us);
      EXPECT_FALSE(result.plan.transfers.front().native());
    }
}

TEST_F(PageablePlanTest, NoGain_StaysNative) {
  EXPECT_TRUE(plan(true, kGiB, 1).native()) << "one CPU";
  EXPECT_TRUE(plan(true, 64 * kKiB, 16).native());
  EXPECT_FALSE(plan(true, 4 * kMiB, 16).native());
  node.costs.pageable_to_gpu_gbps = 52;
  EXPECT_TRUE(plan(true, kGiB, 4).native()) << "a driver that copies fast";
  EXPECT_TRUE(plan(true, kGiB, 4).plan.native());
  for (Link& link : node.links)
    if (link.type == LinkType::pcie) link.type = LinkType::c2c;
  node.costs.pageable_to_gpu_gbps = 9.5;
  EXPECT_TRUE(plan(true, kGiB, 16).native()) << "a coherent CPU";
}

TEST_F(PageablePlanTest, SmallestSize_IsTheFirstThatGains) {
  const Request request{MemoryId::host(0), MemoryId::gpu(0), 0};
  const std::uint64_t least = smallest_pageable(node, request, pinned(request), 16);
  ASSERT_GT(least, 64 * kKiB);
  EXPECT_FALSE(plan(true, least, 16).native());
  EXPECT_TRUE(plan(true, least / 2, 16).native());
  EXPECT_EQ(smallest_pageable(node, request, pinned(request), 1), 0u);
}

TEST(Cpus, Quota_IsReadFromBothKindsOfGroups) {
  EXPECT_EQ(parse_cpu_quota("max 100000\n"), 0);
  EXPECT_EQ(parse_cpu_quota("400000 100000\n"), 4);
  EXPECT_EQ(parse_cpu_quota("150000\n 100000\n"), 1.5);
  EXPECT_EQ(parse_cpu_quota("-1\n 100000\n"), 0);
  EXPECT_EQ(parse_cpu_quota(""), 0);
  EXPECT_GE(usable_cpus(), 1);
}

TEST(Cpus, Ranks_AreTheLaunchersWord) {
  for (const char* const name :
       {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
        "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"})
    unsetenv(name);
  EXPECT_EQ(ranks_on_this_machine(), 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
  EXPECT_EQ(ranks_on_this_machine(), 4);
  setenv("LOCAL_WORLD_SIZE", "no number", 1);
  EXPECT_EQ(ranks_on_this_machine(), 4);
  unsetenv("LOCAL_WORLD_SIZE");
  unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
}

}  // namespace
}  // namespace polypath
