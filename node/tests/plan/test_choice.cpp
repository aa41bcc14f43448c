// Plans that follow a choice: its routes, shares and chunks at any size, or no plan at all.
#include "plan/transfer_config.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/units.hpp"
#include "plan_inputs.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kGranule = 4 * kKiB;

std::optional<Plan> follow(const Node& node, const std::vector<Request>& requests,
                           const TransferConfig& choice, const PlanOptions& options = {}) {
  return make_plan(node, make_route_sets(node, requests, options.filter), requests, options,
                   choice);
}

std::vector<Request> single_request(std::uint64_t bytes) {
  return {{MemoryId::gpu(0), MemoryId::gpu(1), bytes}};
}

/// Direct, by two GPUs and by the host; chunks of 1 MiB and of 0.5 MiB.
TransferConfig four_routes() {
  return {32 * kMiB,
          {{RouteKind::direct, .375, 1},
           {RouteKind::via_gpu, .25, 8},
           {RouteKind::via_gpu, .25, 8},
           {RouteKind::via_host, .125, 8}},
          3};
}

TEST(TransferConfig, GivesThePlanThatItNames) {
  const auto plan = follow(mesh_node(), single_request(32 * kMiB), four_routes());
  ASSERT_TRUE(plan);
  const TransferPlan& transfer = plan->transfers.at(0);
  expect_covered(transfer);
  struct Row {
    const char* route;
    std::uint64_t offset;
    std::uint64_t bytes;
    int chunks;
    std::uint64_t chunk_bytes;
  };
  const std::vector<Row> rows{{"direct", 0, 12 * kMiB, 1, 12 * kMiB},
                              {"via gpu2", 12 * kMiB, 8 * kMiB, 8, kMiB},
                              {"via gpu3", 20 * kMiB, 8 * kMiB, 8, kMiB},
                              {"via host0", 28 * kMiB, 4 * kMiB, 8, 512 * kKiB}};
  ASSERT_EQ(transfer.routes.size(), rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const RouteShare& share = transfer.routes[r];
    EXPECT_EQ(to_string(share.route), rows[r].route);
    EXPECT_EQ(share.offset, rows[r].offset);
    EXPECT_EQ(share.bytes, rows[r].bytes);
    EXPECT_EQ(share.chunks, rows[r].chunks);
    EXPECT_EQ(share.chunk_bytes, rows[r].chunk_bytes);
    EXPECT_EQ(share.slots, 3);
    EXPECT_GT(share.gbps, 0);
  }
  EXPECT_GT(plan->predicted_us, 0);
  Plan explained = *plan;
  explain(mesh_node(), make_route_sets(mesh_node(), single_request(32 * kMiB), RouteFilter{}),
          PlanOptions{}, true, explained);
  EXPECT_TRUE(explained.transfers[0].excluded.empty());
}

TEST(TransferConfig, ChunksAreAsLargeAtOtherSizes) {
  for (const int factor : {1, 2, 3, 8}) {
    const auto bytes = 32 * kMiB * static_cast<std::uint64_t>(factor);
    const auto plan = follow(mesh_node(), single_request(bytes), four_routes());
    ASSERT_TRUE(plan);
    const auto& routes = plan->transfers[0].routes;
    for (const std::size_t r : {1, 2, 3}) {
      EXPECT_EQ(routes[r].chunk_bytes, r == 3 ? 512 * kKiB : kMiB);
      EXPECT_EQ(routes[r].chunks, 8 * factor);
    }
  }
  // A smaller share has fewer, the smallest one.
  const auto plan = follow(mesh_node(), single_request(kMiB), four_routes());
  ASSERT_TRUE(plan);
  expect_covered(plan->transfers[0]);
  for (const RouteShare& share : plan->transfers[0].routes) EXPECT_EQ(share.chunks, 1);
  EXPECT_EQ(plan->transfers[0].routes[1].bytes, 256 * kKiB);
}

TEST(TransferConfig, ChunksFitTheRing) {
  PlanOptions options;
  options.chunks.rings.gpu = 3 * kMiB;
  TransferConfig choice = four_routes();
  choice.routes[1].chunks = 1;
  const auto plan = follow(mesh_node(), single_request(32 * kMiB), choice, options);
  ASSERT_TRUE(plan);
  expect_covered(plan->transfers[0]);
  EXPECT_EQ(plan->transfers[0].routes[1].chunk_bytes, kMiB);
  EXPECT_EQ(plan->transfers[0].routes[1].chunks, 8);
}

TEST(TransferConfig, ComesBackFromItsPlanOnRandomNodes) {
  int followed = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Node node = random_node(random);
    auto requests = random_requests(random, node);
    TransferConfig choice;
    choice.bytes = kMiB * static_cast<std::uint64_t>(pick(random, 8, 64)) + random() % kMiB;
    choice.slots = pick(random, 0, 8);
    const int kinds = pick(random, 1, 4);
    double sum = 0;
    for (int i = 0; i < kinds; ++i) {
      const auto kind = i == 0 ? RouteKind::direct
                               : std::array{RouteKind::via_gpu, RouteKind::via_host}[random() % 2];
      const double part = 1 + pick(random, 0, 9);
      choice.routes.push_back({kind, part, kind == RouteKind::direct ? 1 : pick(random, 1, 4)});
      sum += part;
    }
    for (RouteConfig& route : choice.routes) route.share /= sum;
    for (Request& request : requests) request.bytes = choice.bytes;
    // Rings that no chunk of these is too large for.
    PlanOptions options;
    options.chunks.rings.gpu = options.chunks.rings.host = 256 * kMiB;
    const auto plan = follow(node, requests, choice, options);
    if (!plan) continue;
    bool by_host_link = false;
    for (const TransferPlan& transfer : plan->transfers) {
      expect_covered(transfer);
      for (const RouteShare& share : transfer.routes)
        for (const int leg : share.route.legs) {
          const Link& link = node.links[static_cast<std::size_t>(leg)];
          by_host_link = by_host_link || link.from.is_host() || link.to.is_host();
        }
    }
    EXPECT_GT(plan->predicted_us, 0);
    EXPECT_LE(rate_gbps(plan->bytes(), plan->predicted_us), plan->limit_gbps * (1 + 1e-6));
    const TransferConfig back = choice_of(*plan);
    EXPECT_EQ(back.bytes, choice.bytes);
    EXPECT_EQ(back.slots, choice.slots);
    ASSERT_EQ(back.routes.size(), choice.routes.size());
    const double granule = static_cast<double>(kGranule) / static_cast<double>(choice.bytes);
    for (std::size_t r = 0; r < choice.routes.size(); ++r) {
      EXPECT_EQ(back.routes[r].kind, choice.routes[r].kind);
      EXPECT_NEAR(back.routes[r].share, choice.routes[r].share,
                  granule * static_cast<double>(r == 0 ? choice.routes.size() : 1));
      // Over a host link chunks have a limit of their own.
      if (!by_host_link) {
        EXPECT_EQ(back.routes[r].chunks, choice.routes[r].chunks);
      }
    }
    ++followed;
  }
  EXPECT_GT(followed, 200);
}

TEST(TransferConfig, ConfigOfModelPlan_GivesThatPlan) {
  const Node node = mesh_node();
  const auto requests = single_request(64 * kMiB + 5);
  const Plan plan =
      make_plan(node, make_route_sets(node, requests, RouteFilter{}), requests, PlanOptions{});
  ASSERT_FALSE(plan.native());
  const auto again = follow(node, requests, choice_of(plan));
  ASSERT_TRUE(again);
  ASSERT_EQ(again->transfers[0].routes.size(), plan.transfers[0].routes.size());
  for (std::size_t r = 0; r < plan.transfers[0].routes.size(); ++r) {
    const RouteShare& expected = plan.transfers[0].routes[r];
    const RouteShare& share = again->transfers[0].routes[r];
    EXPECT_EQ(share.route, expected.route);
    EXPECT_LE(std::max(share.bytes, expected.bytes) - std::min(share.bytes, expected.bytes),
              kGranule * plan.transfers[0].routes.size());
    EXPECT_EQ(share.chunks, expected.chunks);
  }
}

TEST(TransferConfig, NativeConfig_GivesTheNativeCopy) {
  const TransferConfig native = native_choice(kMiB);
  EXPECT_TRUE(native.native());
  EXPECT_FALSE(four_routes().native());
  const auto plan = follow(mesh_node(), single_request(64 * kMiB), native);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->native());
  Plan explained = *plan;
  explain(mesh_node(), make_route_sets(mesh_node(), single_request(64 * kMiB), RouteFilter{}),
          PlanOptions{}, true, explained);
  EXPECT_EQ(explained.transfers[0].excluded.size(), 3u);
  EXPECT_EQ(choice_of(*plan), native_choice(64 * kMiB));
  EXPECT_FALSE((TransferConfig{kMiB, {{RouteKind::via_gpu, 1, 4}}, 0}).native());
}

TEST(TransferConfig, WithoutADirectRouteTheFirstTakesTheRest) {
  const TransferConfig choice{
      16 * kMiB, {{RouteKind::via_gpu, .5, 4}, {RouteKind::via_gpu, .5, 4}}, 0};
  const auto plan = follow(mesh_node(), single_request(16 * kMiB + 3), choice);
  ASSERT_TRUE(plan);
  expect_covered(plan->transfers[0]);
  EXPECT_EQ(plan->transfers[0].routes[0].bytes, 8 * kMiB + 3);
}

TEST(TransferConfig, ConfigThatDoesNotFit_IsRefused) {
  const Node node = mesh_node();
  ASSERT_TRUE(follow(node, single_request(32 * kMiB), four_routes()));
  const auto refused = [&](const char* why, std::uint64_t bytes, const TransferConfig& choice,
                           const PlanOptions& options = {}) {
    EXPECT_FALSE(follow(node, single_request(bytes), choice, options)) << why;
  };
  refused("no routes", kMiB, TransferConfig{kMiB, {}, 0});
  TransferConfig choice = four_routes();
  choice.bytes = 0;
  refused("chunks of no size", 32 * kMiB, choice);
  choice = four_routes();
  choice.routes.push_back({RouteKind::via_gpu, .125, 1});
  refused("three GPUs to stage in", 32 * kMiB, choice);
  choice = four_routes();
  choice.routes[3].share = 1e-5;
  refused("less than a granule for the host", 32 * kMiB, choice);
  choice.routes[3].share = .5;
  refused("nothing left for the first route", 32 * kMiB, choice);
  choice.routes[3].share = .75;
  refused("more than all", 32 * kMiB, choice);
  refused("a message of less than a granule a route", 8 * kKiB, four_routes());

  PlanOptions options;
  options.max_routes = 3;
  refused("more routes than allowed", 32 * kMiB, four_routes(), options);
  options.max_routes = 4;
  EXPECT_TRUE(follow(node, single_request(32 * kMiB), four_routes(), options));
  options = {};
  options.filter.host = false;
  refused("no routes by the host", 32 * kMiB, four_routes(), options);
  options = {};
  options.filter.without = {MemoryId::gpu(2)};
  refused("one GPU fewer", 32 * kMiB, four_routes(), options);
  options = {};
  options.chunks.rings.max_in_host = 0;
  refused("no ring in host memory", 32 * kMiB, four_routes(), options);
}

TEST(TransferConfig, GroupSharesTheRings) {
  const Node node = mesh_node();
  const TransferConfig choice{
      16 * kMiB, {{RouteKind::direct, .75, 1}, {RouteKind::via_host, .25, 2}}, 0};
  const std::vector<Request> requests{{MemoryId::gpu(0), MemoryId::gpu(1), 16 * kMiB},
                                      {MemoryId::gpu(2), MemoryId::gpu(3), 16 * kMiB}};
  PlanOptions options;
  options.chunks.rings.max_in_host = 2;
  const auto plan = follow(node, requests, choice, options);
  ASSERT_TRUE(plan);
  for (const TransferPlan& transfer : plan->transfers) {
    expect_covered(transfer);
    EXPECT_EQ(transfer.routes.size(), 2u);
  }
  options.chunks.rings.max_in_host = 1;
  EXPECT_FALSE(follow(node, requests, choice, options));
}

}  // namespace
}  // namespace polypath
