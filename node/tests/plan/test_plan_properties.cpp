// What holds for every plan, on random nodes, sizes and options.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/transfer_schedule.hpp"
#include "plan_inputs.hpp"
#include "schedule_order.hpp"

namespace polypath {
namespace {

TEST(PlanProperties, HoldOnRandomNodes) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Node node = random_node(random);
    const auto requests = random_requests(random, node);
    PlanOptions options;
    if (pick(random, 0, 3) == 0) options.max_routes = pick(random, 1, 4);
    if (pick(random, 0, 3) == 0) options.chunks.chunk_bytes = kMiB << pick(random, 0, 2);
    const RouteSets route_sets = make_route_sets(node, requests, options.filter);
    const Plan plan = make_plan(node, route_sets, requests, options);

    for (const TransferPlan& transfer : plan.transfers) {
      expect_covered(transfer);
      if (options.max_routes > 0) {
        EXPECT_LE(transfer.routes.size(), static_cast<std::size_t>(options.max_routes));
      }
    }
    EXPECT_LE(rate_gbps(plan.bytes(), plan.predicted_us), plan.limit_gbps * (1 + 1e-6));
    EXPECT_LE(plan.predicted_us, plan.native_us * (1 + 1e-9));
    const GroupSchedule schedule = make_schedule(plan, options.chunks.rings);
    const GroupSchedule again = make_schedule(
        make_plan(node, make_route_sets(node, requests, options.filter), requests, options),
        options.chunks.rings);
    EXPECT_EQ(schedule.order, again.order);
    for (std::size_t t = 0; t < schedule.transfers.size(); ++t)
      EXPECT_EQ(*schedule.transfers[t], *again.transfers[t]) << to_string(*schedule.transfers[t]);
  }
}

void expect_within_capacities(const Node& node, const std::vector<Demand>& demands,
                              const std::vector<std::vector<double>>& rates) {
  std::vector<double> links(node.links.size());
  std::vector<double> ports(node.ports.size());
  for (std::size_t t = 0; t < demands.size(); ++t)
    for (std::size_t r = 0; r < demands[t].routes.size(); ++r)
      for (const int leg : demands[t].routes[r].legs) {
        links[static_cast<std::size_t>(leg)] += rates[t][r];
        for (const int port : node.links[static_cast<std::size_t>(leg)].ports)
          ports[static_cast<std::size_t>(port)] += rates[t][r];
      }
  for (std::size_t i = 0; i < links.size(); ++i)
    EXPECT_LE(links[i], node.links[i].gbps * (1 + 1e-6));
  for (std::size_t i = 0; i < ports.size(); ++i)
    EXPECT_LE(ports[i], node.ports[i].gbps * (1 + 1e-6));
}

std::vector<Demand> demands_of(const Node& node, const std::vector<Request>& requests) {
  std::vector<Demand> demands;
  for (const Request& request : requests)
    demands.push_back({request.bytes, find_routes(node, request.src, request.dst, {})});
  return demands;
}

TEST(PlanProperties, FlowExceedsNoLinkAndNoPort) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Node node = random_node(random);
    const auto demands = demands_of(node, random_requests(random, node));
    expect_within_capacities(node, demands, maximum_flow(node, demands).route_gbps);
    expect_within_capacities(node, demands, fair_rates(node, demands));
  }
}

/// The rates of a measured node are never quite alike. That makes the linear program hard.
TEST(PlanProperties, FlowOfMeasuredNode_IsOneThatItCanCarry) {
  for (const char* name : {"hgx-h200-x4", "dgx-h200-x8", "dgx-a100-x8", "full-mesh-x8"})
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(std::string(name) + ", seed " + std::to_string(seed));
      Random random(seed);
      Node node = known_node(name);
      for (Link& link : node.links) link.gbps *= 1 + 1e-5 * pick(random, 0, 1000);
      for (Port& port : node.ports) port.gbps *= 1 + 1e-5 * pick(random, 0, 1000);
      const int gpus = static_cast<int>(node.gpus.size());
      const auto memories = node.memories();
      const auto some_memory = [&] {
        return memories[static_cast<std::size_t>(
            pick(random, 0, static_cast<int>(memories.size()) - 1))];
      };
      const auto expect_carried = [&](const std::vector<Request>& requests) {
        const auto demands = demands_of(node, requests);
        const Flow flow = maximum_flow(node, demands);
        expect_within_capacities(node, demands, flow.route_gbps);
        const double each_gbps = flow.gbps / static_cast<double>(requests.size());
        for (const std::vector<double>& routes : flow.route_gbps)
          EXPECT_GE(std::accumulate(routes.begin(), routes.end(), 0.0), each_gbps * (1 - 1e-6));
        EXPECT_GT(flow.gbps, 0);
      };
      for (int i = 0; i < 60; ++i) {
        const Request first{some_memory(), some_memory(), 64 * kMiB};
        const Request second{some_memory(), some_memory(), 64 * kMiB};
        const auto is_no_transfer = [](const Request& request) {
          return request.src == request.dst || (request.src.is_host() && request.dst.is_host());
        };
        if (!is_no_transfer(first) && !is_no_transfer(second)) expect_carried({first, second});
      }
      std::vector<Request> ring;
      for (int gpu = 0; gpu < gpus - 1; ++gpu)
        ring.push_back({MemoryId::gpu(gpu), MemoryId::gpu((gpu + 1) % (gpus - 1)), 64 * kMiB});
      expect_carried(ring);
    }
}

}  // namespace
}  // namespace polypath
