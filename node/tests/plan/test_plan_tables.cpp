// Plans of known nodes as tables: which routes a size takes, and with which share.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/plan.hpp"
#include "plan_inputs.hpp"

namespace polypath {
namespace {

Plan plan_of(const Node& node, const std::vector<Request>& requests,
             const RouteFilter& filter = {}) {
  PlanOptions options;
  options.filter = filter;
  return make_plan(node, make_route_sets(node, requests, filter), requests, options);
}

struct RoutesOfSize {
  const char* node;
  std::uint64_t bytes;
  std::vector<std::pair<const char*, double>> routes;  ///< route, share
};

TEST(PlanTables, FromGpu0ToGpu1) {
  const std::vector<RoutesOfSize> rows = {
      {"narval", 64 * kKiB, {{"direct", 1.0}}},
      {"narval",
       64 * kMiB,
       {{"direct", .37}, {"via gpu2", .28}, {"via gpu3", .28}, {"via host0", .07}}},
      {"narval",
       512 * kMiB,
       {{"direct", .33}, {"via gpu2", .30}, {"via gpu3", .30}, {"via host0", .08}}},
      {"beluga",
       512 * kMiB,
       {{"direct", .32}, {"via gpu2", .30}, {"via gpu3", .30}, {"via host0", .08}}},
      {"mist", 512 * kMiB, {{"direct", .51}, {"via host0", .49}}},
      {"marenostrum5",
       512 * kMiB,
       {{"direct", .31}, {"via gpu2", .28}, {"via gpu3", .28}, {"via host0", .12}}},
      {"hgx-h200-x4", 8 * kMiB, {{"direct", 1.0}}},
      {"hgx-h200-x4", 512 * kMiB, {{"direct", .89}, {"via host0", .11}}},
      {"dgx-h200-x8", 512 * kMiB, {{"direct", .89}, {"via host0", .11}}},
  };
  for (const RoutesOfSize& row : rows) {
    SCOPED_TRACE(std::string(row.node) + " " + format_bytes(row.bytes));
    const Plan plan =
        plan_of(known_node(row.node), {{MemoryId::gpu(0), MemoryId::gpu(1), row.bytes}});
    const auto& routes = plan.transfers.front().routes;
    ASSERT_EQ(routes.size(), row.routes.size());
    for (std::size_t i = 0; i < routes.size(); ++i) {
      EXPECT_EQ(to_string(routes[i].route), row.routes[i].first);
      EXPECT_NEAR(static_cast<double>(routes[i].bytes) / static_cast<double>(row.bytes),
                  row.routes[i].second, 0.015);
    }
  }
}

TEST(PlanTables, NoGpuStagedRouteBehindAnNvswitch) {
  for (const char* name : {"hgx-h200-x4", "dgx-h200-x8"}) {
    const Node node = known_node(name);
    for (int to = 1; to < static_cast<int>(node.gpus.size()); ++to)
      for (std::uint64_t bytes = kMiB; bytes <= kGiB; bytes *= 8) {
        const Plan plan = plan_of(node, {{MemoryId::gpu(0), MemoryId::gpu(to), bytes}});
        for (const RouteShare& share : plan.transfers.front().routes)
          EXPECT_NE(share.route.kind, RouteKind::via_gpu) << name << " to gpu" << to;
      }
  }
}

std::vector<Request> ring(int gpus, std::uint64_t bytes, bool both) {
  std::vector<Request> requests;
  for (int i = 0; i < gpus; ++i) {
    requests.push_back({MemoryId::gpu(i), MemoryId::gpu((i + 1) % gpus), bytes});
    if (both) requests.push_back({MemoryId::gpu((i + 1) % gpus), MemoryId::gpu(i), bytes});
  }
  return requests;
}

TEST(PlanTables, Ring_TakesTwoRoutesPerTransfer) {
  RouteFilter filter;
  filter.host = false;
  const Node node = known_node("narval");
  const Plan plan = plan_of(node, ring(4, 256 * kMiB, false), filter);
  std::vector<int> used(node.links.size());
  for (const TransferPlan& transfer : plan.transfers) {
    EXPECT_EQ(transfer.routes.size(), 2u);
    for (const RouteShare& share : transfer.routes)
      for (const int leg : share.route.legs) ++used[static_cast<std::size_t>(leg)];
  }
  for (const int times : used) EXPECT_LE(times, 1);
}

TEST(PlanTables, RingInBothDirections_StaysDirect) {
  RouteFilter filter;
  filter.host = false;
  EXPECT_TRUE(plan_of(known_node("narval"), ring(4, 256 * kMiB, true), filter).native());
}

}  // namespace
}  // namespace polypath
