#include "plan/transfer_config.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "base/units.hpp"

namespace polypath {
namespace {

/// The routes of one transfer, by the kinds of the choice: first those of the widest route set.
std::optional<std::vector<Route>> pick(const RouteSets& route_sets, std::size_t transfer,
                                       const TransferConfig& choice) {
  std::vector<Route> known;
  if (!route_sets.sets.empty())
    for (const RatedRoute& rated : route_sets.sets.front().transfers[transfer])
      known.push_back(rated.route);
  for (const Route& route : route_sets.candidates[transfer].routes)
    if (std::ranges::find(known, route) == known.end()) known.push_back(route);
  std::vector<Route> routes;
  for (const RouteConfig& config : choice.routes) {
    const auto it = std::ranges::find_if(known, [&](const Route& route) {
      return route.kind == config.kind && std::ranges::find(routes, route) == routes.end();
    });
    if (it == known.end()) return std::nullopt;
    routes.push_back(*it);
  }
  return routes;
}

bool rings_suffice(const std::vector<Demand>& demands, const RingLimits& rings) {
  std::map<MemoryId, int> used;
  for (const Demand& demand : demands)
    for (const Route& route : demand.routes)
      if (route.staged() && ++used[route.via] > rings.max_in(route.via)) return false;
  return true;
}

/// Cuts the share into chunks as large as those of the choice.
void cut(RouteShare& share, const RouteConfig& config, const TransferConfig& choice,
         std::uint64_t max_chunk) {
  const double chunk =
      config.share * static_cast<double>(choice.bytes) / std::max(1, config.chunks);
  const double pieces = std::max(1.0, std::round(static_cast<double>(share.bytes) / chunk));
  const auto even =
      static_cast<std::uint64_t>(std::ceil(static_cast<double>(share.bytes) / pieces));
  share.chunk_bytes = std::min(max_chunk, (even + kGranule - 1) / kGranule * kGranule);
  share.chunks = static_cast<int>((share.bytes + share.chunk_bytes - 1) / share.chunk_bytes);
}

/// The shares of one transfer: whole granules for all but the first route, which takes the rest.
bool fill(const Node& node, const std::vector<RatedRoute>& routes, const TransferConfig& choice,
          const RingLimits& rings, TransferPlan& transfer, double& us) {
  const std::uint64_t message = transfer.request.bytes;
  std::uint64_t staged = 0;
  for (std::size_t r = 1; r < routes.size(); ++r)
    staged += static_cast<std::uint64_t>(choice.routes[r].share * static_cast<double>(message)) /
              kGranule * kGranule;
  if (staged >= message) return false;
  std::uint64_t offset = 0;
  for (std::size_t r = 0; r < routes.size(); ++r) {
    const RouteConfig& config = choice.routes[r];
    const RouteCost cost = cost_of(node, routes[r], rings);
    RouteShare share;
    share.route = routes[r].route;
    share.gbps = routes[r].gbps;
    share.offset = offset;
    share.bytes = r == 0 ? message - staged
                         : static_cast<std::uint64_t>(config.share * static_cast<double>(message)) /
                               kGranule * kGranule;
    if (share.bytes == 0) return false;
    offset += share.bytes;
    share.chunk_bytes = share.bytes;
    share.slots = choice.slots;
    if (share.route.staged()) cut(share, config, choice, cost.max_chunk_bytes);
    us = std::max(
        us, cost.time_us(static_cast<double>(share.bytes), static_cast<double>(share.chunk_bytes)));
    transfer.routes.push_back(share);
  }
  return true;
}

}  // namespace

std::string_view to_string(ExecutorKind kind) noexcept {
  switch (kind) {
    case ExecutorKind::stream: return "stream";
    case ExecutorKind::graph: return "graph";
  }
  return "?";
}

std::string_view choice_name(RouteKind kind) noexcept {
  switch (kind) {
    case RouteKind::direct: return "direct";
    case RouteKind::via_gpu: return "gpu";
    case RouteKind::via_host: return "host";
  }
  return "?";
}

TransferConfig native_choice(std::uint64_t bytes) {
  return {bytes, {{RouteKind::direct, 1, 1}}, 0};
}

TransferConfig choice_of(const Plan& plan) {
  const TransferPlan& transfer = plan.transfers.front();
  TransferConfig choice;
  choice.bytes = transfer.request.bytes;
  for (const RouteShare& share : transfer.routes) {
    choice.routes.push_back({share.route.kind,
                             static_cast<double>(share.bytes) / static_cast<double>(choice.bytes),
                             share.chunks});
    choice.slots = std::max(choice.slots, share.slots);
  }
  return choice;
}

std::optional<Plan> make_plan(const Node& node, const RouteSets& route_sets,
                              const std::vector<Request>& requests, const PlanOptions& options,
                              const TransferConfig& choice) {
  if (choice.routes.empty() || choice.bytes == 0) return std::nullopt;
  if (options.max_routes != 0 && std::cmp_greater(choice.routes.size(), options.max_routes))
    return std::nullopt;
  std::vector<Demand> demands;
  for (std::size_t t = 0; t < requests.size(); ++t) {
    auto routes = pick(route_sets, t, choice);
    if (!routes) return std::nullopt;
    demands.push_back({std::max<std::uint64_t>(requests[t].bytes, 1), std::move(*routes)});
  }
  if (!rings_suffice(demands, options.chunks.rings)) return std::nullopt;
  const auto rates = fair_rates(node, demands);

  Plan plan;
  plan.limit_gbps = route_sets.limit_gbps;
  plan.native_us = native_us(node, route_sets, requests, options);
  for (std::size_t t = 0; t < requests.size(); ++t) {
    std::vector<RatedRoute> rated;
    for (std::size_t r = 0; r < demands[t].routes.size(); ++r)
      rated.push_back({demands[t].routes[r], rates[t][r]});
    TransferPlan& transfer = plan.transfers.emplace_back();
    transfer.request = requests[t];
    if (!fill(node, rated, choice, options.chunks.rings, transfer, plan.predicted_us))
      return std::nullopt;
  }
  return plan;
}

}  // namespace polypath
