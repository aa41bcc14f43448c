#include "plan/plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/units.hpp"

namespace polypath {
namespace {

/// A route set must promise to save this part of the native time, and this part of what a staged
/// route costs before its first byte arrives: the model is not finer than that.
constexpr double kMinGain = 0.02;
/// Where the driver itself carries the native copy through host memory, next to our staged legs,
/// the model is coarser.
constexpr double kMinGainBounced = 0.05;
constexpr double kMinGainOfFixed = 0.2;
/// In a sequence nothing has to be filled; this much the issue and the join of each transfer may
/// cost.
constexpr double kMinGainInSequenceUs = 5;
/// Two route sets this near are equal: fewer routes win (each costs CPU time and staging memory),
/// or more where RouteSets::spread is set.
constexpr double kTie = 0.99;
constexpr double kTieToSpread = 1.04;
/// A smaller share does not pay for its events.
constexpr double kMinShare = 64.0 * 1024;
/// CPU time of a copy of a staged route, with its event and its share of the waits, in native
/// copies: 1.9 to 2.6 us against 1.7 on 4 x H200.
constexpr double kIssueOfStaged = 1.4;
/// Chunk sizes settle within a few rounds: each depends on the square root of its share.
constexpr int kRounds = 8;

/// One route of a transfer while its share is sought.
struct Piece {
  RouteCost cost;
  double share = 0;  ///< bytes
  double chunk = 0;  ///< bytes

  /// In how many chunks a staged route carries its share; 0: a direct one.
  [[nodiscard]] double chunks(const ChunkLimits& limits) const {
    return cost.staged && share > 0 ? share / cost.chunk_bytes(share, limits) : 0;
  }
};

/// Shares that end at the same time; false when a route would not pay. With the chunk sizes held,
/// each route's time is linear in its share, so the common end is one division; the chunk sizes
/// then follow the shares.
bool equalise(std::span<Piece> pieces, double bytes, const ChunkLimits& limits) {
  for (int round = 0; round < kRounds; ++round) {
    double rate = 0;
    double late = 0;  // sum over the routes of rate * time before its first byte counts
    for (Piece& piece : pieces) {
      piece.chunk = piece.cost.staged ? piece.cost.chunk_bytes(piece.share, limits) : piece.share;
      const auto [offset_us, us_a_byte] = piece.cost.line(piece.share, piece.chunk);
      rate += 1 / us_a_byte;
      late += offset_us / us_a_byte;
    }
    const double end_us = (bytes + late) / rate;
    for (Piece& piece : pieces) {
      const auto [offset_us, us_a_byte] = piece.cost.line(piece.share, piece.chunk);
      piece.share = (end_us - offset_us) / us_a_byte;
      if (piece.share <= 0 || (piece.cost.staged && piece.share < kMinShare)) return false;
    }
  }
  return true;
}

/// How often copies begin on links and ports while a route set runs, and how long the routes are
/// halted by it. A link that has anything on it halts; a port only when it is filled, because one
/// with room makes up for a halt.
class Halts {
 public:
  explicit Halts(const Node& node)
      : node_(node), chunks_(node.links.size() + node.ports.size()), gbps_(node.ports.size()) {}

  /// Counts a route with `chunks` chunks; a direct one begins once, before all others.
  void add(const RatedRoute& rated, double chunks) {
    for (const int leg : rated.route.legs) {
      const auto link = static_cast<std::size_t>(leg);
      chunks_[link] += chunks;
      for (const int port : node_.links[link].ports) {
        gbps_[static_cast<std::size_t>(port)] += rated.gbps;
        chunks_[place_of(port)] += chunks;
      }
    }
  }

  /// How long a route with `chunks` chunks of its own is halted, by its leg that is halted longest.
  /// A leg's own chunks do not halt it.
  [[nodiscard]] double time_us(const Route& route, double chunks) const {
    double most = 0;
    for (const int leg : route.legs) {
      const auto link = static_cast<std::size_t>(leg);
      most = std::max(most, chunks_[link]);
      for (const int port : node_.links[link].ports)
        if (is_filled(port)) most = std::max(most, chunks_[place_of(port)]);
    }
    return std::max(0.0, most - chunks) * node_.costs.copy_handover_us;
  }

 private:
  /// The part of a port's capacity from which on it counts as filled.
  static constexpr double kFilled = 0.9;

  [[nodiscard]] std::size_t place_of(int port) const {
    return node_.links.size() + static_cast<std::size_t>(port);
  }
  [[nodiscard]] bool is_filled(int port) const {
    const auto at = static_cast<std::size_t>(port);
    return gbps_[at] >= kFilled * node_.ports[at].gbps;
  }

  const Node& node_;
  std::vector<double> chunks_;  // by link, then by port
  std::vector<double> gbps_;    // by port
};

/// Cuts the share of a staged route into chunks of whole granules.
void cut(RouteShare& share, const RouteCost& cost, const ChunkLimits& limits) {
  const auto chunk_bytes = cost.chunk_bytes(static_cast<double>(share.bytes), limits);
  const double exact = static_cast<double>(share.bytes) / chunk_bytes;
  auto pieces = static_cast<std::uint64_t>(std::max(1.0, std::round(exact)));
  // Rounding down must not make a chunk that is larger than a slot.
  const std::uint64_t most = cost.max_chunk_bytes;
  if ((share.bytes + pieces - 1) / pieces > most) pieces = (share.bytes + most - 1) / most;
  const std::uint64_t even = (share.bytes + pieces - 1) / pieces;
  share.chunk_bytes = std::min(most, (even + kGranule - 1) / kGranule * kGranule);
  share.chunks = static_cast<int>((share.bytes + share.chunk_bytes - 1) / share.chunk_bytes);
}

/// What the transfers of a group do on one route set.
struct RouteSetPlan {
  double us = 0;                                ///< until the last ends
  std::vector<std::vector<RouteShare>> shares;  ///< of each transfer
};

/// One route set with its shares; nothing when a route would not pay. The calling thread issues the
/// copies of the whole group in turn: first the direct copies, then chunk after chunk of all staged
/// routes.
std::optional<RouteSetPlan> plan_route_set(const Node& node, const RouteSet& route_set,
                                           const std::vector<Request>& requests,
                                           const PlanOptions& options) {
  const ChunkLimits& limits = options.chunks;
  const double copy_us = node.costs.copy_issue_us;
  std::size_t staged = 0;
  for (const auto& routes : route_set.transfers)
    staged += static_cast<std::size_t>(std::ranges::count_if(
        routes, [](const RatedRoute& rated) { return rated.route.staged(); }));
  const double round_us = 2 * kIssueOfStaged * copy_us * static_cast<double>(staged);
  // The first staged route's first chunk after one direct copy is what staged_fixed_us holds.
  double issued_us = static_cast<double>(requests.size() - 1) * copy_us;

  // By transfer and route, with shares by the flow's rates.
  std::vector<std::vector<Piece>> all_pieces(requests.size());
  std::optional<Halts> halts;
  if (staged > 0) halts.emplace(node);
  for (std::size_t t = 0; t < requests.size(); ++t) {
    const auto& routes = route_set.transfers[t];
    std::vector<Piece>& pieces = all_pieces[t];
    double total_gbps = 0;
    for (const RatedRoute& route : routes) {
      Piece& piece = pieces.emplace_back(Piece{cost_of(node, route, limits.rings)});
      total_gbps += route.gbps;
      if (!piece.cost.staged) continue;
      piece.cost.runs_on = options.in_sequence;
      piece.cost.fixed_us += issued_us;
      piece.cost.round_us = round_us;
      issued_us += kIssueOfStaged * copy_us;
    }
    if (total_gbps <= 0) return std::nullopt;
    for (std::size_t r = 0; r < routes.size(); ++r) {
      Piece& piece = pieces[r];
      piece.share = static_cast<double>(requests[t].bytes) * routes[r].gbps / total_gbps;
      if (halts) halts->add(routes[r], piece.chunks(limits));
    }
  }

  RouteSetPlan plan;
  for (std::size_t t = 0; t < requests.size(); ++t) {
    const auto& routes = route_set.transfers[t];
    std::vector<Piece>& pieces = all_pieces[t];
    std::vector<double> halts_us(routes.size());
    for (std::size_t r = 0; halts && r < routes.size(); ++r)
      halts_us[r] = halts->time_us(routes[r].route, pieces[r].chunks(limits));
    const auto add_halts = [&] {
      for (std::size_t r = 0; r < routes.size(); ++r) pieces[r].cost.halts_us = halts_us[r];
    };
    // From and to host memory the direct copy is halted as the staged ones are: the shares that
    // were measured on 4 x H200 follow the rates alone.
    const bool is_between_gpus = requests[t].src.is_gpu() && requests[t].dst.is_gpu();
    if (is_between_gpus) add_halts();
    if (!equalise(pieces, static_cast<double>(requests[t].bytes), limits)) return std::nullopt;
    add_halts();

    auto& shares = plan.shares.emplace_back(routes.size());
    // Whole granules for all but the first, which takes the rest.
    std::uint64_t offset = 0;
    for (std::size_t r = routes.size(); r-- > 0;) {
      RouteShare& rated = shares[r];
      rated.route = routes[r].route;
      rated.gbps = routes[r].gbps;
      rated.bytes = r == 0 ? requests[t].bytes - offset
                           : static_cast<std::uint64_t>(pieces[r].share) / kGranule * kGranule;
      offset += rated.bytes;
    }
    offset = 0;
    for (std::size_t r = 1; r <= routes.size(); ++r) {
      RouteShare& rated = shares[r % routes.size()];
      const RouteCost& cost = pieces[r % routes.size()].cost;
      rated.offset = offset;
      offset += rated.bytes;
      rated.chunk_bytes = rated.bytes;
      if (cost.staged) cut(rated, cost, limits);
      plan.us = std::max(plan.us, cost.time_us(static_cast<double>(rated.bytes),
                                               static_cast<double>(rated.chunk_bytes)));
    }
  }
  return plan;
}

/// The longest time for which leaving the native copies pays.
double worthwhile(const Node& node, const std::vector<Request>& requests, double native_us,
                  bool in_sequence) {
  const bool bounced = std::ranges::any_of(requests, [&](const Request& request) {
    const auto link = node.find_link(request.src, request.dst);
    return link && node.links[static_cast<std::size_t>(*link)].type == LinkType::bounce;
  });
  return native_us - std::max(native_us * (bounced ? kMinGainBounced : kMinGain),
                              in_sequence ? kMinGainInSequenceUs
                                          : staged_fixed_us(node.costs) * kMinGainOfFixed);
}

/// Whether the route set keeps to the number of routes a transfer, and to the rings of each memory.
bool within(const RouteSet& route_set, const PlanOptions& options) {
  std::map<MemoryId, int> rings;
  for (const auto& routes : route_set.transfers) {
    if (options.max_routes != 0 && std::cmp_greater(routes.size(), options.max_routes))
      return false;
    for (const RatedRoute& rated : routes) {
      const Route& route = rated.route;
      if (route.staged() && ++rings[route.via] > options.chunks.rings.max_in(route.via))
        return false;
    }
  }
  return true;
}

bool direct_only(const RouteSet& route_set) {
  return std::ranges::all_of(route_set.transfers, [](const auto& routes) {
    return routes.size() == 1 && !routes.front().route.staged();
  });
}

std::optional<RouteSetPlan> plan_native(const Node& node, const RouteSets& route_sets,
                                        const std::vector<Request>& requests,
                                        const PlanOptions& options) {
  if (route_sets.sets.empty() || !direct_only(route_sets.sets.back())) return std::nullopt;
  return plan_route_set(node, route_sets.sets.back(), requests, options);
}

bool uses(const std::vector<RatedRoute>& routes, const Route& route) {
  return std::ranges::any_of(routes, [&](const RatedRoute& rated) { return rated.route == route; });
}

bool small(const std::vector<Request>& requests, const PlanOptions& options) {
  return std::ranges::any_of(
      requests, [&](const Request& request) { return request.bytes < options.min_bytes; });
}

/// Every route of the node that the transfer does not take, with the reason.
std::vector<ExcludedRoute> explain(const Node& node, const Request& request, std::size_t transfer,
                                   const RouteSets& route_sets, const TransferPlan& plan, int ranks,
                                   const std::string& why) {
  RouteFilter divided;
  divided.ranks = ranks;
  const std::vector<Route> own = find_routes(node, request.src, request.dst, divided);
  std::vector<ExcludedRoute> excluded;
  for (const Route& route : find_routes(node, request.src, request.dst, RouteFilter{})) {
    const bool taken = std::ranges::any_of(
        plan.routes, [&](const RouteShare& share) { return share.route == route; });
    if (taken) continue;
    const auto& allowed = route_sets.candidates[transfer].routes;
    if (std::ranges::find(own, route) == own.end())
      excluded.push_back({route, "left to the other ranks of this machine"});
    else if (std::ranges::find(allowed, route) == allowed.end())
      excluded.push_back({route, "not allowed by the settings, or its memory cannot be used"});
    else if (!route_sets.sets.empty() && !uses(route_sets.sets.front().transfers[transfer], route))
      excluded.push_back(
          {route, "adds nothing to the flow: its links are full with better routes"});
    else
      excluded.push_back({route, why});
  }
  return excluded;
}

}  // namespace

double issue_us(const Plan& plan, const Costs& costs) noexcept {
  int copies = 0;
  int calls = 4;
  for (const TransferPlan& transfer : plan.transfers) {
    for (const RouteShare& share : transfer.routes) {
      const int steps = share.chunks * static_cast<int>(share.route.legs.size());
      copies += steps;
      calls += share.route.staged() ? 8 + 2 * steps : 4;
    }
  }
  return copies * costs.copy_issue_us + calls * costs.call_us;
}

double native_us(const Node& node, const RouteSets& route_sets,
                 const std::vector<Request>& requests, const PlanOptions& options) {
  const auto native = plan_native(node, route_sets, requests, options);
  return native ? native->us : 0;
}

std::uint64_t Plan::bytes() const noexcept {
  return std::accumulate(
      transfers.begin(), transfers.end(), std::uint64_t{0},
      [](std::uint64_t sum, const TransferPlan& t) { return sum + t.request.bytes; });
}

RouteSets make_route_sets(const Node& node, const std::vector<Request>& requests,
                          const RouteFilter& filter) {
  std::vector<Demand> demands;
  for (const Request& request : requests)
    demands.push_back({std::max<std::uint64_t>(request.bytes, 1),
                       find_routes(node, request.src, request.dst, filter)});
  return make_route_sets(node, std::move(demands));
}

Plan make_plan(const Node& node, const RouteSets& route_sets, const std::vector<Request>& requests,
               const PlanOptions& options) {
  Plan plan;
  plan.limit_gbps = route_sets.limit_gbps;
  for (const Request& request : requests) plan.transfers.push_back({request, {}, {}});

  const auto native = plan_native(node, route_sets, requests, options);
  if (native) plan.native_us = native->us;
  std::optional<RouteSetPlan> best = native;
  const double worthwhile_us = native ? worthwhile(node, requests, native->us, options.in_sequence)
                                      : std::numeric_limits<double>::infinity();
  double min_us = worthwhile_us;
  if (!(small(requests, options) && native)) {
    for (auto route_set = route_sets.sets.rbegin(); route_set != route_sets.sets.rend();
         ++route_set) {
      if (direct_only(*route_set) || !within(*route_set, options)) continue;
      auto candidate = plan_route_set(node, *route_set, requests, options);
      if (!candidate) continue;
      const double tie = route_sets.spread ? kTieToSpread : kTie;
      if (candidate->us > worthwhile_us || candidate->us >= min_us * tie) continue;
      min_us = std::min(min_us, candidate->us);
      best = std::move(candidate);
    }
  }
  if (best) {
    plan.predicted_us = best->us;
    for (std::size_t t = 0; t < requests.size(); ++t)
      plan.transfers[t].routes = std::move(best->shares[t]);
  }
  return plan;
}

void explain(const Node& node, const RouteSets& route_sets, const PlanOptions& options, bool tuned,
             Plan& plan) {
  std::vector<Request> requests;
  for (const TransferPlan& transfer : plan.transfers) requests.push_back(transfer.request);
  std::string why = "would not pay at this size";
  const bool native = !route_sets.sets.empty() && direct_only(route_sets.sets.back());
  if (native && small(requests, options)) {
    why = "the message is below the smallest size to split";
  } else if (std::ranges::any_of(route_sets.sets, [&](const RouteSet& route_set) {
               return !direct_only(route_set) && !within(route_set, options);
             })) {
    why += ", or takes more routes or staging memory than allowed";
  }
  if (route_sets.sets.empty())
    plan.reason = "no allowed route leads there";
  else if (!plan.native())
    plan.reason = fmt::format(
        "{} of {:.1f} GB/s that the routes allow",
        plan.predicted_us > 0 ? fmt::format("{:.1f}", rate_gbps(plan.bytes(), plan.predicted_us))
                              : std::string("0"),
        plan.limit_gbps);
  else if (direct_only(route_sets.sets.front()))
    plan.reason = "no other route adds to the direct one";
  else
    plan.reason = "other routes: " + why;
  if (tuned) why = "the tuned choice is faster without it";
  for (std::size_t t = 0; t < requests.size(); ++t)
    plan.transfers[t].excluded =
        explain(node, requests[t], t, route_sets, plan.transfers[t], options.filter.ranks, why);
}

}  // namespace polypath
