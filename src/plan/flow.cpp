#include "plan/flow.hpp"

#include <cstddef>
#include <map>

#include "plan/simplex.hpp"

namespace polypath {
namespace {

/// A capacity with the variables that draw on it.
struct Resource {
  double gbps = 0;
  std::map<int, double> use;  ///< variable -> times that a unit of it passes
};

/// Adds variable `variable`'s legs to the links and ports that they pass.
void draw(const Node& node, const Route& route, int variable, std::vector<Resource>& links,
          std::vector<Resource>& ports) {
  for (const int leg : route.legs) {
    const auto link = static_cast<std::size_t>(leg);
    links[link].use[variable] += 1;
    for (const int port : node.links[link].ports)
      ports[static_cast<std::size_t>(port)].use[variable] += 1;
  }
}

}  // namespace

Flow maximum_flow(const Node& node, const std::vector<Demand>& demands) {
  Flow flow;
  double total_bytes = 0;
  int variables = 1;  // variable 0: the rate of all transfers together
  for (const Demand& demand : demands) {
    total_bytes += static_cast<double>(demand.bytes);
    variables += static_cast<int>(demand.routes.size());
    flow.route_gbps.emplace_back(demand.routes.size(), 0.0);
  }
  if (total_bytes <= 0) return flow;

  LinearProgram program;
  program.variables = variables;
  const auto columns = static_cast<std::size_t>(variables);
  std::vector<double> rate(columns, 0.0);
  std::vector<double> staged(columns, 0.0);
  rate[0] = 1;

  std::vector<Resource> links(node.links.size());
  std::vector<Resource> ports(node.ports.size());
  for (std::size_t i = 0; i < links.size(); ++i) links[i].gbps = node.links[i].gbps;
  for (std::size_t i = 0; i < ports.size(); ++i) ports[i].gbps = node.ports[i].gbps;

  int variable = 1;
  for (const Demand& demand : demands) {
    // rate * (bytes of this transfer / all bytes) <= sum of its routes
    std::vector<double> row(columns, 0.0);
    row[0] = static_cast<double>(demand.bytes) / total_bytes;
    for (const Route& route : demand.routes) {
      const auto column = static_cast<std::size_t>(variable);
      row[column] = -1;
      staged[column] = route.staged() ? -1 : 0;
      draw(node, route, variable, links, ports);
      ++variable;
    }
    program.rows.push_back(std::move(row));
    program.bounds.push_back(0);
  }
  for (const auto* resources : {&links, &ports}) {
    for (const Resource& resource : *resources) {
      if (resource.use.empty()) continue;
      std::vector<double> row(columns, 0.0);
      for (const auto& [column, times] : resource.use) row[static_cast<std::size_t>(column)] = times;
      program.rows.push_back(std::move(row));
      program.bounds.push_back(resource.gbps);
    }
  }
  program.objectives = {rate, staged};

  const std::vector<double> x = solve(program);
  flow.gbps = x[0];
  std::size_t next = 1;
  for (auto& routes : flow.route_gbps)
    for (double& gbps : routes) gbps = x[next++];
  return flow;
}

}  // namespace polypath
