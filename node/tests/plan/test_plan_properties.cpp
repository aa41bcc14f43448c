// What holds for every plan, on random nodes, sizes and options.
#include <gtest/gtest.h>

#include <algorithm>
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

TEST(PlanProperties, FlowExceedsNoLinkAndNoPort) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Node node = random_node(random);
    std::vector<Demand> demands;
    for (const Request& request : random_requests(random, node))
      demands.push_back({request.bytes, find_routes(node, request.src, request.dst, {})});
    for (const auto& rates : {maximum_flow(node, demands).route_gbps, fair_rates(node, demands)}) {
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
  }
}

}  // namespace
}  // namespace polypath
