// The route sets for a group of transfers: the first has the maximum flow, each next one has one
// route fewer, the last has the direct routes alone. They do not depend on the sizes of the
// messages, only on their proportion, so they are computed once; a plan picks the set for its size.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/flow.hpp"

namespace polypath {

/// A route with the rate that it gets next to the others of its route set (fair_rates).
struct RatedRoute {
  Route route;
  double gbps = 0;
};

/// A set of routes that fit together without contention.
struct RouteSet {
  double gbps = 0;                                 ///< all transfers together
  std::vector<std::vector<RatedRoute>> transfers;  ///< routes of each transfer
};

struct RouteSets {
  double limit_gbps = 0;           ///< maximum flow over all allowed routes
  std::vector<RouteSet> sets;      ///< most routes first; empty when a transfer has no route
  std::vector<Demand> candidates;  ///< the routes that were allowed at all
  /// One transfer from or to host memory: more routes are better than fewer where the model is
  /// indifferent. What many host links carry together is no sharp limit, and the more of them share
  /// the load, the less it depends on any.
  bool spread = false;
};

/// The first route set has the routes that the maximum flow uses; for a transfer from or to host
/// memory it has all routes, if they carry as much when they share fairly. Each further route set
/// leaves out the route whose loss costs least flow (of equals the one listed last). The direct
/// route of a transfer, or its only one, is never left out. Sets that stage on more than three
/// GPUs are dropped where each further GPU, on which the process would need a context, adds less
/// than 2 % to the flow.
RouteSets make_route_sets(const Node& node, std::vector<Demand> demands);

}  // namespace polypath
