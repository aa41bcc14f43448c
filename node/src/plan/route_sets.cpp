#include "plan/route_sets.hpp"

#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

namespace polypath {
namespace {

/// Below this part of the whole rate a route is not worth a name.
constexpr double kNegligible = 1e-6;

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

/// Takes out the route that is missed least, of equal ones the last; false when none may go.
/// `gbps`: the flow of all. A route whose loss costs no flow ends the search: on large nodes most
/// are such.
bool descend(const Node& node, std::vector<Demand>& demands, double gbps) {
  struct Removal {
    std::size_t transfer = 0, route = 0;
    double gbps = -1;  // of the others
  };
  std::optional<Removal> best;
  for (std::size_t t = demands.size(); t-- > 0;) {
    for (std::size_t r = demands[t].routes.size(); r-- > 0;) {
      if (!removable(demands[t], r)) continue;
      auto without = demands;
      remove_route(without[t], r);
      const Removal removal{t, r, maximum_flow(node, without).gbps};
      if (!best || removal.gbps * (1 - kNegligible) > best->gbps) best = removal;
      if (best->gbps < gbps * (1 - kNegligible)) continue;
      remove_route(demands[best->transfer], best->route);
      return true;
    }
  }
  if (!best) return false;
  remove_route(demands[best->transfer], best->route);
  return true;
}

}  // namespace

RouteSets make_route_sets(const Node& node, std::vector<Demand> demands) {
  RouteSets route_sets;
  route_sets.candidates = demands;
  for (const Demand& demand : demands)
    if (demand.routes.empty()) return route_sets;

  Flow flow;
  do {
    flow = maximum_flow(node, demands);
    if (route_sets.sets.empty()) {
      route_sets.limit_gbps = flow.gbps;
      route_sets.spread = can_spread(node, demands, flow);
    }
    if (!route_sets.spread) prune(demands, flow);
    route_sets.sets.push_back(make_route_set(node, demands, flow));
  } while (descend(node, demands, flow.gbps));
  return route_sets;
}

}  // namespace polypath
