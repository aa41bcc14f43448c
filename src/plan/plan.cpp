#include "plan/plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/units.hpp"

namespace polypath {
namespace {

/// A rung must promise to save this part of the native time, and this part of what a staged route costs
/// before its first byte arrives: the model is not finer than that.
constexpr double kLeastGain = 0.02;
/// Where the driver itself carries the native copy through host memory, beside our staged legs, the model
/// is coarser.
constexpr double kLeastGainBounced = 0.10;
constexpr double kLeastGainOfFixed = 0.35;
/// Two rungs this near are equal: fewer routes win (each costs CPU time and staging memory), or more where
/// the ladder says spread.
constexpr double kTie = 0.99;
constexpr double kTieToSpread = 1.04;
/// Staged shares are multiples of this, so that every chunk but the message's end is aligned.
constexpr std::uint64_t kGranule = 4 * kKiB;
/// A smaller share does not pay for its events.
constexpr double kLeastShare = 64.0 * 1024;
/// CPU time of a copy of a staged route, with its event and its share of the waits, in native copies:
/// 1.9 to 2.6 us against 1.7 on 4 x H200.
constexpr double kIssueOfStaged = 1.4;
/// Chunk sizes settle within a few rounds: each depends on the square root of its share.
constexpr int kRounds = 8;

/// What one transfer does on one rung.
struct Candidate {
  double us = 0;
  std::vector<RouteShare> shares;
};

/// Shares that end at the same time. `issued_us` is the CPU time before the first staged route's first
/// chunk is issued, and becomes that behind the last. With the chunk sizes held, each route's time is linear in its
/// share, so the common end is one division; the chunk sizes then follow the shares.
std::optional<Candidate> equalise(const Node& node, const std::vector<RatedRoute>& routes,
                                  std::uint64_t message, double& issued_us,
                                  const ChunkLimits& limits) {
  const std::size_t count = routes.size();
  const auto bytes = static_cast<double>(message);
  std::vector<RouteCost> costs;
  double total_gbps = 0;
  for (const RatedRoute& route : routes) {
    costs.push_back(cost_of(node, route, limits.rings));
    total_gbps += route.gbps;
    if (!costs.back().staged) continue;
    costs.back().fixed_us += issued_us;
    issued_us += kIssueOfStaged * node.costs.copy_issue_us;
  }
  if (total_gbps <= 0) return std::nullopt;

  std::vector<double> share(count);
  for (std::size_t r = 0; r < count; ++r) share[r] = bytes * routes[r].gbps / total_gbps;
  std::vector<double> chunk(count, 0.0);
  for (int round = 0; round < kRounds; ++round) {
    double rate = 0;
    double late = 0;  // sum over the routes of rate * time before its first byte counts
    std::vector<double> offset_us(count);
    std::vector<double> slope(count);  // us a byte
    for (std::size_t r = 0; r < count; ++r) {
      const RouteCost& cost = costs[r];
      chunk[r] = cost.staged ? cost.chunk_bytes(share[r], limits) : share[r];
      offset_us[r] = cost.fixed_us + (cost.staged ? chunk[r] / cost.fill_bytes_per_us : 0.0);
      slope[r] = 1 / cost.bytes_per_us + (cost.staged ? cost.gap_us / chunk[r] : 0.0);
      rate += 1 / slope[r];
      late += offset_us[r] / slope[r];
    }
    const double end_us = (bytes + late) / rate;
    for (std::size_t r = 0; r < count; ++r) {
      share[r] = (end_us - offset_us[r]) / slope[r];
      if (costs[r].staged && share[r] < kLeastShare) return std::nullopt;
      if (share[r] <= 0) return std::nullopt;
    }
  }

  Candidate candidate;
  std::uint64_t offset = 0;
  for (std::size_t r = 0; r < count; ++r) {
    // Whole granules for all but one route: the direct one, else the last, takes the rest.
    const bool takes_rest = r == 0;
    if (takes_rest) continue;
    RouteShare one;
    one.route = routes[r].route;
    one.gbps = routes[r].gbps;
    one.offset = offset;
    one.bytes = static_cast<std::uint64_t>(share[r]) / kGranule * kGranule;
    offset += one.bytes;
    candidate.shares.push_back(one);
  }
  RouteShare rest;
  rest.route = routes[0].route;
  rest.gbps = routes[0].gbps;
  rest.offset = offset;
  rest.bytes = message - offset;
  candidate.shares.insert(candidate.shares.begin(), rest);

  for (std::size_t r = 0; r < count; ++r) {
    RouteShare& one = candidate.shares[r];
    one.chunk_bytes = one.bytes;
    if (costs[r].staged) {
      const auto wanted = costs[r].chunk_bytes(static_cast<double>(one.bytes), limits);
      const double exact = static_cast<double>(one.bytes) / wanted;
      auto pieces = static_cast<std::uint64_t>(std::max(1.0, std::round(exact)));
      // Rounding down must not make a chunk that is larger than a slot.
      const std::uint64_t most = costs[r].max_chunk_bytes;
      if ((one.bytes + pieces - 1) / pieces > most) pieces = (one.bytes + most - 1) / most;
      const std::uint64_t even = (one.bytes + pieces - 1) / pieces;
      one.chunk_bytes = std::min(most, (even + kGranule - 1) / kGranule * kGranule);
      one.chunks = static_cast<int>((one.bytes + one.chunk_bytes - 1) / one.chunk_bytes);
    }
    candidate.us = std::max(candidate.us, costs[r].time_us(static_cast<double>(one.bytes),
                                                           static_cast<double>(one.chunk_bytes)));
  }
  return candidate;
}

/// A whole rung with its shares; nothing when a route would not pay.
struct RungPlan {
  double us = 0;
  std::vector<Candidate> transfers;
};

std::optional<RungPlan> plan_rung(const Node& node, const Rung& rung,
                                  const std::vector<Request>& requests, const ChunkLimits& limits) {
  RungPlan plan;
  // The staged routes' first chunks are issued in turn, behind the direct copies of all; the first one
  // behind one direct copy is what staged_fixed_us holds.
  double issued_us = static_cast<double>(requests.size() - 1) * node.costs.copy_issue_us;
  for (std::size_t t = 0; t < requests.size(); ++t) {
    auto candidate = equalise(node, rung.transfers[t], requests[t].bytes, issued_us, limits);
    if (!candidate) return std::nullopt;
    plan.us = std::max(plan.us, candidate->us);
    plan.transfers.push_back(std::move(*candidate));
  }
  return plan;
}

/// The longest time for which leaving the native copies pays.
double worthwhile(const Node& node, const std::vector<Request>& requests, double native_us) {
  const bool bounced = std::ranges::any_of(requests, [&](const Request& request) {
    const auto link = node.find_link(request.src, request.dst);
    return link && node.links[static_cast<std::size_t>(*link)].type == LinkType::bounce;
  });
  return native_us - std::max(native_us * (bounced ? kLeastGainBounced : kLeastGain),
                              staged_fixed_us(node.costs) * kLeastGainOfFixed);
}

/// Whether the rung keeps to the number of routes a transfer, and to the rings of each memory.
bool within(const Rung& rung, const PlanOptions& options) {
  std::map<MemoryId, int> rings;
  for (const auto& routes : rung.transfers) {
    if (options.max_routes != 0 && std::cmp_greater(routes.size(), options.max_routes))
      return false;
    for (const RatedRoute& rated : routes) {
      const Route& route = rated.route;
      if (route.staged() && ++rings[route.via] > options.chunks.rings.most_in(route.via))
        return false;
    }
  }
  return true;
}

bool direct_only(const Rung& rung) {
  return std::ranges::all_of(rung.transfers, [](const auto& routes) {
    return routes.size() == 1 && !routes.front().route.staged();
  });
}

bool uses(const std::vector<RatedRoute>& routes, const Route& route) {
  return std::ranges::any_of(routes, [&](const RatedRoute& one) { return one.route == route; });
}

/// Every route of the node that the transfer does not take, with the reason.
std::vector<LeftOut> explain(const Node& node, const Request& request, std::size_t transfer,
                             const Ladder& ladder, const TransferPlan& plan,
                             const std::string& why) {
  std::vector<LeftOut> left_out;
  for (const Route& route : find_routes(node, request.src, request.dst, RouteFilter{})) {
    const bool taken = std::ranges::any_of(
        plan.routes, [&](const RouteShare& share) { return share.route == route; });
    if (taken) continue;
    const auto& allowed = ladder.candidates[transfer].routes;
    if (std::ranges::find(allowed, route) == allowed.end())
      left_out.push_back({route, "not allowed by the settings, or its memory cannot be used"});
    else if (!ladder.rungs.empty() && !uses(ladder.rungs.front().transfers[transfer], route))
      left_out.push_back(
          {route, "adds nothing to the flow: its links are full with better routes"});
    else
      left_out.push_back({route, why});
  }
  return left_out;
}

}  // namespace

std::uint64_t Plan::bytes() const noexcept {
  return std::accumulate(
      transfers.begin(), transfers.end(), std::uint64_t{0},
      [](std::uint64_t sum, const TransferPlan& t) { return sum + t.request.bytes; });
}

bool Plan::native() const noexcept {
  return std::ranges::all_of(transfers, [](const TransferPlan& t) { return t.native(); });
}

Ladder make_ladder(const Node& node, const std::vector<Request>& requests,
                   const RouteFilter& filter) {
  std::vector<Demand> demands;
  for (const Request& request : requests)
    demands.push_back({std::max<std::uint64_t>(request.bytes, 1),
                       find_routes(node, request.src, request.dst, filter)});
  return make_ladder(node, std::move(demands));
}

Plan make_plan(const Node& node, const Ladder& ladder, const std::vector<Request>& requests,
               const PlanOptions& options) {
  Plan plan;
  plan.limit_gbps = ladder.limit_gbps;
  for (const Request& request : requests) plan.transfers.push_back({request, {}, {}});

  const bool small = std::ranges::any_of(
      requests, [&](const Request& request) { return request.bytes < options.min_bytes; });
  std::optional<RungPlan> native;
  if (!ladder.rungs.empty() && direct_only(ladder.rungs.back())) {
    native = plan_rung(node, ladder.rungs.back(), requests, options.chunks);
    if (native) plan.native_us = native->us;
  }

  std::optional<RungPlan> best = native;
  const double worthwhile_us =
      native ? worthwhile(node, requests, native->us) : std::numeric_limits<double>::infinity();
  double least_us = worthwhile_us;
  bool dropped_by_limit = false;
  if (!(small && native)) {
    for (auto rung = ladder.rungs.rbegin(); rung != ladder.rungs.rend(); ++rung) {
      if (direct_only(*rung)) continue;
      if (!within(*rung, options)) {
        dropped_by_limit = true;
        continue;
      }
      auto candidate = plan_rung(node, *rung, requests, options.chunks);
      if (!candidate) continue;
      const double tie = ladder.spread ? kTieToSpread : kTie;
      if (candidate->us > worthwhile_us || candidate->us >= least_us * tie) continue;
      least_us = std::min(least_us, candidate->us);
      best = std::move(candidate);
    }
  }

  if (best) {
    plan.predicted_us = best->us;
    for (std::size_t t = 0; t < requests.size(); ++t)
      plan.transfers[t].routes = std::move(best->transfers[t].shares);
  }

  std::string why = "would not pay at this size";
  if (small && native) why = "the message is below the smallest size to split";
  if (dropped_by_limit) why += ", or takes more routes or staging memory than allowed";
  if (ladder.rungs.empty())
    plan.reason = "no allowed route leads there";
  else if (!plan.native())
    plan.reason = fmt::format(
        "{} of {:.1f} GB/s that the routes allow",
        plan.predicted_us > 0 ? fmt::format("{:.1f}", rate_gbps(plan.bytes(), plan.predicted_us))
                              : std::string("0"),
        plan.limit_gbps);
  else if (direct_only(ladder.rungs.front()))
    plan.reason = "no other route adds to the direct one";
  else
    plan.reason = "other routes: " + why;
  for (std::size_t t = 0; t < requests.size(); ++t)
    plan.transfers[t].left_out = explain(node, requests[t], t, ladder, plan.transfers[t], why);
  return plan;
}

}  // namespace polypath
