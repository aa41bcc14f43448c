#include "plan/flow.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>

#include "plan/simplex.hpp"

namespace polypath {
namespace {

/// A capacity with the routes that draw on it.
struct Resource {
  double gbps = 0;
  std::map<std::size_t, double> use;  ///< route, counted over all demands -> times that it passes
};

/// The links and ports that some route passes.
std::vector<Resource> resources_of(const Node& node, const std::vector<Demand>& demands) {
  std::vector<Resource> links(node.links.size());
  std::vector<Resource> ports(node.ports.size());
  for (std::size_t i = 0; i < links.size(); ++i) links[i].gbps = node.links[i].gbps;
  for (std::size_t i = 0; i < ports.size(); ++i) ports[i].gbps = node.ports[i].gbps;
  std::size_t index = 0;
  for (const Demand& demand : demands) {
    for (const Route& route : demand.routes) {
      for (const int leg : route.legs) {
        const auto link = static_cast<std::size_t>(leg);
        links[link].use[index] += 1;
        for (const int port : node.links[link].ports)
          ports[static_cast<std::size_t>(port)].use[index] += 1;
      }
      ++index;
    }
  }
  std::vector<Resource> used;
  for (auto* resources : {&links, &ports})
    for (Resource& resource : *resources)
      if (!resource.use.empty()) used.push_back(std::move(resource));
  return used;
}

std::size_t count_routes(const std::vector<Demand>& demands) {
  std::size_t count = 0;
  for (const Demand& demand : demands) count += demand.routes.size();
  return count;
}

}  // namespace

Flow maximum_flow(const Node& node, const std::vector<Demand>& demands) {
  Flow flow;
  double total_bytes = 0;
  for (const Demand& demand : demands) {
    total_bytes += static_cast<double>(demand.bytes);
    flow.route_gbps.emplace_back(demand.routes.size(), 0.0);
  }
  if (total_bytes <= 0) return flow;

  // Variable 0 is the rate of all transfers together; then one variable a route.
  LinearProgram program;
  const std::size_t columns = 1 + count_routes(demands);
  program.variables = static_cast<int>(columns);
  std::vector<double> rate(columns, 0.0);
  std::vector<double> staged(columns, 0.0);
  rate[0] = 1;

  std::size_t column = 1;
  for (const Demand& demand : demands) {
    // rate * (bytes of this transfer / all bytes) <= sum of its routes
    std::vector<double> row(columns, 0.0);
    row[0] = static_cast<double>(demand.bytes) / total_bytes;
    for (const Route& route : demand.routes) {
      row[column] = -1;
      staged[column] = route.staged() ? -1 : 0;
      ++column;
    }
    program.rows.push_back(std::move(row));
    program.bounds.push_back(0);
  }
  for (const Resource& resource : resources_of(node, demands)) {
    std::vector<double> row(columns, 0.0);
    for (const auto& [route, times] : resource.use) row[1 + route] = times;
    program.rows.push_back(std::move(row));
    program.bounds.push_back(resource.gbps);
  }
  program.objectives = {rate, staged};

  const std::vector<double> x = solve(program);
  flow.gbps = x[0];
  std::size_t next = 1;
  for (auto& routes : flow.route_gbps)
    for (double& gbps : routes) gbps = x[next++];
  return flow;
}

std::vector<std::vector<double>> fair_rates(const Node& node, const std::vector<Demand>& demands) {
  const std::size_t count = count_routes(demands);
  std::vector<Resource> resources = resources_of(node, demands);
  std::vector<double> rates(count, 0.0);
  std::vector<bool> rising(count, true);
  for (std::size_t left = count; left > 0;) {
    // The resource that fills first decides how far all rise.
    double step = std::numeric_limits<double>::infinity();
    for (const Resource& resource : resources) {
      double weight = 0;
      for (const auto& [route, times] : resource.use) weight += rising[route] ? times : 0;
      if (weight > 0) step = std::min(step, resource.gbps / weight);
    }
    for (std::size_t route = 0; route < count; ++route)
      if (rising[route]) rates[route] += step;
    std::vector<bool> stopped(count, false);
    for (Resource& resource : resources) {
      double weight = 0;
      for (const auto& [route, times] : resource.use) weight += rising[route] ? times : 0;
      const bool full = weight > 0 && resource.gbps <= step * weight * (1 + 1e-9);
      resource.gbps = std::max(0.0, resource.gbps - step * weight);
      if (!full) continue;
      for (const auto& [route, times] : resource.use) stopped[route] = true;
    }
    for (std::size_t route = 0; route < count; ++route) {
      if (!rising[route] || !stopped[route]) continue;
      rising[route] = false;
      --left;
    }
  }
  std::vector<std::vector<double>> by_transfer;
  auto next = rates.begin();
  for (const Demand& demand : demands) {
    const auto end = next + static_cast<std::ptrdiff_t>(demand.routes.size());
    by_transfer.emplace_back(next, end);
    next = end;
  }
  return by_transfer;
}

}  // namespace polypath
