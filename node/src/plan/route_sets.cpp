#include "plan/route_sets.hpp"

#include <algorithm>
#include <cstddef>
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
  drop_costly_sets(node, route_sets.sets);
  return route_sets;
}

}  // namespace polypath
