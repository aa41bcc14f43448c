// The ladder of route sets for a group of transfers: the set with the maximum flow on the first
// rung, one route fewer on each next, the direct routes alone on the last. It does not depend on
// the size of the messages, only on their proportion, so it is computed once; a plan picks the rung
// for its size.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/flow.hpp"

namespace polypath {

/// A route with the rate that it gets next to the others of its rung (fair_rates).
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
  std::vector<RouteSet> rungs;     ///< most routes first; empty when a transfer has no route
  std::vector<Demand> candidates;  ///< the routes that were allowed at all
  /// One transfer from or to host memory: more routes are better than fewer where the model is
  /// indifferent. What many host links carry together is no sharp limit, and the more of them share
  /// the load, the less it depends on any.
  bool spread = false;
};

/// The first rung has the routes that the maximum flow uses; of a transfer from or to host memory
/// all routes, when sharing fairly they carry as much. Each further rung leaves out the route whose
/// loss costs least flow (of equals the one listed last). The direct route of a transfer, or its
/// only one, is never left out.
RouteSets make_route_sets(const Node& node, std::vector<Demand> demands);

}  // namespace polypath
