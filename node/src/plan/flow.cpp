#include "plan/flow.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "plan/simplex.hpp"

namespace polypath {
namespace {

/// With more routes staged traffic may be uneven: for a ring of sixteen on DGX-2 it took 16 s.
constexpr std::size_t kMaxEvenRoutes = 64;

/// A capacity with the routes that draw on it.
struct Resource {
  double gbps = 0;
  std::map<std::size_t, double> use;  ///< route, counted over all demands -> times that it passes
};

/// The links and ports that some route passes, links first.
struct Resources {
  std::vector<Resource> all;
  std::size_t links = 0;  ///< how many of `all` are links
};

Resources resources_of(const Node& node, const std::vector<Demand>& demands) {
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
  const auto is_unused = [](const Resource& resource) { return resource.use.empty(); };
  std::erase_if(links, is_unused);
  std::erase_if(ports, is_unused);
  Resources used{std::move(links), 0};
  used.links = used.all.size();
  std::ranges::move(ports, std::back_inserter(used.all));
  return used;
}

std::size_t count_routes(const std::vector<Demand>& demands) {
  std::size_t count = 0;
  for (const Demand& demand : demands) count += demand.routes.size();
  return count;
}

/// Variable 0 is the rate of all transfers together; then one variable a route; the last is the
/// part of a link that staged traffic takes, of the link where it is the largest.
class FlowProgram {
 public:
  FlowProgram(const Node& node, const std::vector<Demand>& demands)
      : largest_part_(1 + count_routes(demands)),
        columns_(largest_part_ + 1),
        resources_(resources_of(node, demands)),
        staged_(columns_, 0.0) {
    program_.variables = static_cast<int>(columns_);
    double total_bytes = 0;
    for (const Demand& demand : demands) total_bytes += static_cast<double>(demand.bytes);
    std::size_t column = 1;
    for (const Demand& demand : demands) {
      // rate * (bytes of this transfer / all bytes) <= sum of its routes
      std::vector<double> row(columns_, 0.0);
      row[0] = static_cast<double>(demand.bytes) / total_bytes;
      for (const Route& route : demand.routes) {
        row[column] = -1;
        staged_[column] = route.staged() ? -1 : 0;
        ++column;
      }
      add(std::move(row), 0);
    }
    for (const Resource& resource : resources_.all) {
      std::vector<double> row(columns_, 0.0);
      for (const auto& [route, times] : resource.use) row[1 + route] = times;
      add(std::move(row), resource.gbps);
    }
    program_.objectives.push_back(only(0, 1));
  }

  void prefer_direct() { program_.objectives.push_back(staged_); }

  void prefer_even() {
    for (const Resource& link : std::span(resources_.all).first(resources_.links)) {
      std::vector<double> row = only(largest_part_, -1);
      bool is_staged = false;
      for (const auto& [route, times] : link.use) {
        if (staged_[1 + route] == 0) continue;
        row[1 + route] = times / link.gbps;
        is_staged = true;
      }
      if (is_staged) add(std::move(row), 0);
    }
    program_.objectives.push_back(only(largest_part_, -1));
  }

  [[nodiscard]] std::vector<double> solve() const { return polypath::solve(program_); }

 private:
  [[nodiscard]] std::vector<double> only(std::size_t column, double value) const {
    std::vector<double> row(columns_, 0.0);
    row[column] = value;
    return row;
  }
  void add(std::vector<double> row, double bound) {
    program_.rows.push_back(std::move(row));
    program_.bounds.push_back(bound);
  }

  std::size_t largest_part_;
  std::size_t columns_;
  Resources resources_;
  std::vector<double> staged_;
  LinearProgram program_;
};

bool is_empty(const std::vector<Demand>& demands) {
  return std::ranges::all_of(demands, [](const Demand& demand) { return demand.bytes == 0; });
}

}  // namespace

double maximum_rate(const Node& node, const std::vector<Demand>& demands) {
  return is_empty(demands) ? 0 : FlowProgram(node, demands).solve().front();
}

Flow maximum_flow(const Node& node, const std::vector<Demand>& demands) {
  Flow flow;
  for (const Demand& demand : demands) flow.route_gbps.emplace_back(demand.routes.size(), 0.0);
  if (is_empty(demands)) return flow;
  FlowProgram program(node, demands);
  program.prefer_direct();
  if (demands.size() > 1 && count_routes(demands) <= kMaxEvenRoutes) program.prefer_even();
  const std::vector<double> x = program.solve();
  flow.gbps = x[0];
  std::size_t next = 1;
  for (auto& routes : flow.route_gbps)
    for (double& gbps : routes) gbps = x[next++];
  return flow;
}

std::vector<std::vector<double>> fair_rates(const Node& node, const std::vector<Demand>& demands) {
  const std::size_t count = count_routes(demands);
  std::vector<Resource> resources = resources_of(node, demands).all;
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
