#include "plan/route_sets.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace polypath {
namespace {

/// Below this part of the whole rate a route is not worth a name.
constexpr double kNegligible = 1e-6;
/// A process needs a context on each GPU that stages for it, 536 MiB on H200s
/// (exec/staging_policy.cpp). Up to this many others are of use when they add nothing to the flow
/// (RouteSets::spread): it is what a node of four GPUs has.
constexpr int kFreeRelays = 3;
/// Each further one has to add this part of the flow.
constexpr double kMinRelayGain = 0.02;

bool removable(const Demand& demand, std::size_t route) {
  return demand.routes.size() > 1 && demand.routes[route].staged();
}

void remove_route(Demand& demand, std::size_t route) {
  demand.routes.erase(demand.routes.begin() + static_cast<std::ptrdiff_t>(route));
}

/// Drops the routes that the flow leaves empty.
void prune(std::vector<Demand>& demands, Flow& flow) {
  for (std::size_t t = 0; t < demands.size(); ++t) {
    for (std::size_t r = demands[t].routes.size(); r-- > 0;) {
      if (!removable(demands[t], r) || flow.route_gbps[t][r] > kNegligible * flow.gbps) continue;
      remove_route(demands[t], r);
      flow.route_gbps[t].erase(flow.route_gbps[t].begin() + static_cast<std::ptrdiff_t>(r));
    }
  }
}

RouteSet make_route_set(const Node& node, const std::vector<Demand>& demands, const Flow& flow) {
  RouteSet route_set;
  route_set.gbps = flow.gbps;
  const auto rates = fair_rates(node, demands);
  for (std::size_t t = 0; t < demands.size(); ++t) {
    auto& routes = route_set.transfers.emplace_back();
    for (std::size_t r = 0; r < demands[t].routes.size(); ++r)
      routes.push_back({demands[t].routes[r], rates[t][r]});
  }
  return route_set;
}

/// Whether all routes of the one transfer, sharing fairly, carry the whole flow.
bool can_spread(const Node& node, const std::vector<Demand>& demands, const Flow& flow) {
  const auto& routes = demands.front().routes;
  const Link& last = node.links[static_cast<std::size_t>(routes.front().legs.back())];
  const Link& first = node.links[static_cast<std::size_t>(routes.front().legs.front())];
  if (demands.size() != 1 || (first.from.is_gpu() && last.to.is_gpu())) return false;
  const auto rates = fair_rates(node, demands).front();
  return std::accumulate(rates.begin(), rates.end(), 0.0) >= flow.gbps * (1 - kNegligible);
}

struct Removable {
  std::size_t transfer = 0;
  std::size_t route = 0;
};

/// The routes that may go, the last first.
std::vector<Removable> removable_routes(const std::vector<Demand>& demands) {
  std::vector<Removable> routes;
  for (std::size_t t = demands.size(); t-- > 0;)
    for (std::size_t r = demands[t].routes.size(); r-- > 0;)
      if (removable(demands[t], r)) routes.push_back({t, r});
  return routes;
}

/// ... of these first those that `flow` uses least.
std::vector<Removable> removable_by_flow(const std::vector<Demand>& demands, const Flow& flow) {
  std::vector<Removable> routes = removable_routes(demands);
  std::ranges::stable_sort(routes, std::less<>(), [&](const Removable& each) {
    return std::llround(flow.route_gbps[each.transfer][each.route] / (kNegligible * flow.gbps));
  });
  return routes;
}

/// Takes out the route that is missed least, of equal ones the first of `routes`; false when none
/// may go. `gbps`: the flow of all. A route whose loss costs no flow ends the search: on large
/// nodes most are such.
bool descend(const Node& node, std::vector<Demand>& demands, const std::vector<Removable>& routes,
             double gbps) {
  std::optional<Removable> best;
  double best_gbps = -1;  // of the others
  for (const Removable& each : routes) {
    auto without = demands;
    remove_route(without[each.transfer], each.route);
    const double of_others = maximum_rate(node, without);
    if (!best || of_others * (1 - kNegligible) > best_gbps) {
      best = each;
      best_gbps = of_others;
    }
    if (best_gbps >= gbps * (1 - kNegligible)) break;
  }
  if (best) remove_route(demands[best->transfer], best->route);
  return best.has_value();
}

/// GPUs on which a set stages, without those that a transfer of the set begins or ends on: these
/// have contexts.
int count_relays(const Node& node, const RouteSet& route_set) {
  std::set<MemoryId> ends, relays;
  for (const auto& routes : route_set.transfers) {
    const std::vector<int>& legs = routes.front().route.legs;
    ends.insert(node.links[static_cast<std::size_t>(legs.front())].from);
    ends.insert(node.links[static_cast<std::size_t>(legs.back())].to);
  }
  for (const auto& routes : route_set.transfers)
    for (const RatedRoute& rated : routes)
      if (rated.route.kind == RouteKind::via_gpu && !ends.contains(rated.route.via))
        relays.insert(rated.route.via);
  return static_cast<int>(relays.size());
}

/// Drops the sets whose contexts cost more than they gain over a set of fewer.
void drop_costly_sets(const Node& node, std::vector<RouteSet>& sets) {
  const auto worth = [&](const RouteSet& route_set) {
    const int costly = std::max(0, count_relays(node, route_set) - kFreeRelays);
    return route_set.gbps / (1 + kMinRelayGain * costly);
  };
  auto best = sets.begin();
  for (auto candidate = sets.begin(); candidate != sets.end(); ++candidate)
    if (worth(*candidate) > worth(*best) * (1 + kNegligible)) best = candidate;
  sets.erase(sets.begin(), best);
}

}  // namespace

RouteSets make_route_sets(const Node& node, std::vector<Demand> demands) {
  RouteSets route_sets;
  route_sets.candidates = demands;
  for (const Demand& demand : demands)
    if (demand.routes.empty()) return route_sets;

  for (bool is_reduced = true; is_reduced;) {
    Flow flow = maximum_flow(node, demands);
    if (route_sets.sets.empty()) {
      route_sets.limit_gbps = flow.gbps;
      route_sets.spread = can_spread(node, demands, flow);
    }
    if (!route_sets.spread) prune(demands, flow);
    route_sets.sets.push_back(make_route_set(node, demands, flow));
    is_reduced =
        descend(node, demands,
                route_sets.spread ? removable_routes(demands) : removable_by_flow(demands, flow),
                flow.gbps);
  }
  drop_costly_sets(node, route_sets.sets);
  return route_sets;
}

}  // namespace polypath
