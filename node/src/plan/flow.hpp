// The maximum flow of one or several transfers over their routes: the best rate that any schedule
// can reach, known before anything runs.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/route.hpp"

namespace polypath {

/// What one transfer wants: its bytes, and the routes that it may use.
struct Demand {
  std::uint64_t bytes = 0;
  std::vector<Route> routes;
};

struct Flow {
  /// GB/s of all transfers together when all end at the same time; 0 when some transfer has no
  /// route.
  double gbps = 0;
  /// GB/s of each route, [transfer][route], in the order of the demands.
  std::vector<std::vector<double>> route_gbps;
};

/// The maximum concurrent flow: every transfer advances in proportion to its bytes, no link and no
/// port carries more than its capacity. Among equal optima the one with the least staged traffic,
/// then the one that prefers routes listed first.
Flow maximum_flow(const Node& node, const std::vector<Demand>& demands);

/// What the routes get when all carry data at once and links and ports share themselves fairly, as
/// hardware does: rates rise together until a link or port is full, and go on rising elsewhere
/// (max-min fairness; Bertsekas and Gallager, "Data Networks", section 6.5). [transfer][route],
/// GB/s.
std::vector<std::vector<double>> fair_rates(const Node& node, const std::vector<Demand>& demands);

}  // namespace polypath
