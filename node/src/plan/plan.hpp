// A plan: which routes carry which part of each transfer, in how many chunks. A plain value; making
// one is a pure function of the node, the route sets, the sizes and the options.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/cost_model.hpp"
#include "plan/route_sets.hpp"

namespace polypath {

/// Staged shares are multiples of this, so that every chunk but the message's end is aligned.
inline constexpr std::uint64_t kGranule = 4 * kKiB;

/// More than that is not planned: no node has such memory, and plans list their chunks.
inline constexpr std::uint64_t kMaxPlanned = 4 * kTiB;

/// A transfer without addresses.
struct Request {
  MemoryId src;
  MemoryId dst;
  std::uint64_t bytes = 0;
  bool is_pageable = false;  ///< the host's memory is not pinned: for plans of such, and benchmarks

  friend bool operator==(const Request&, const Request&) = default;
};

struct PlanOptions {
  RouteFilter filter;
  int max_routes = 0;           ///< a transfer, the direct one included; 0: no limit
  std::uint64_t min_bytes = 0;  ///< below: the native copy
  /// As one of many that follow each other on one stream: the staged routes' pipelines run on from
  /// transfer to transfer, so a share costs its links' time alone.
  bool in_sequence = false;
  ChunkLimits chunks;
};

/// The part of a message that one route carries: `bytes` from `offset` on.
struct RouteShare {
  Route route;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  int chunks = 1;
  std::uint64_t chunk_bytes = 0;  ///< all chunks but the last, which may be smaller
  int slots = 0;                  ///< of its ring, at most; 0: no such limit
  double gbps = 0;                ///< the flow's rate
};

struct ExcludedRoute {
  Route route;
  std::string reason;
};

struct TransferPlan {
  Request request;
  std::vector<RouteShare> routes;       ///< shares cover the message exactly once, without overlap
  std::vector<ExcludedRoute> excluded;  ///< filled by explain()
  int copy_threads = 0;  ///< of pageable memory: they copy by way of pinned slots; 0: none
  double host_gbps = 0;  ///< what these reach at the host's memory

  /// One direct copy, that is, what the driver would do.
  [[nodiscard]] bool native() const noexcept {
    return copy_threads == 0 &&
           (routes.empty() || (routes.size() == 1 && !routes.front().route.staged()));
  }
};

struct Plan {
  std::vector<TransferPlan> transfers;
  std::string reason;       ///< why this route set, for people; filled by explain()
  double predicted_us = 0;  ///< until the last transfer ends
  double native_us = 0;     ///< the same with native copies only
  double limit_gbps = 0;    ///< maximum flow of the allowed routes, all transfers together

  [[nodiscard]] std::uint64_t bytes() const noexcept;
  [[nodiscard]] bool native() const noexcept {
    return std::ranges::all_of(transfers, [](const TransferPlan& t) { return t.native(); });
  }
};

/// The route sets for these requests; only the proportion of their sizes matters.
RouteSets make_route_sets(const Node& node, const std::vector<Request>& requests,
                          const RouteFilter& filter);

/// Shares that equalise the finishing times on the route set that is predicted to end first. A
/// route set that gains less over native copies than 2 %, or than a third of a staged route's fixed
/// cost, is not taken, and of two within 1 % the one with fewer routes. `route_sets` must have been
/// made for the same end points and filter, and for about the same proportion.
Plan make_plan(const Node& node, const RouteSets& route_sets, const std::vector<Request>& requests,
               const PlanOptions& options);

/// How long the native copies take together; 0 where a transfer has none.
double native_us(const Node& node, const RouteSets& route_sets,
                 const std::vector<Request>& requests, const PlanOptions& options);

/// What the CPU takes to issue the plan by streams; a graph takes less.
double issue_us(const Plan& plan, const Costs& costs) noexcept;

/// Says in words why the plan, made of the other arguments, is as it is, and why it leaves out
/// every route that it does not take: for people only. `tuned`: the plan follows a choice.
void explain(const Node& node, const RouteSets& route_sets, const PlanOptions& options, bool tuned,
             Plan& plan);

}  // namespace polypath
