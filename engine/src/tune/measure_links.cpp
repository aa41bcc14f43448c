#include "tune/measure_links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tune/measure_costs.hpp"
#include "tune/measuring_set.hpp"

namespace polypath {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

template <typename Condition>
std::vector<int> links_where(const Node& node, Condition condition) {
  std::vector<int> indices;
  for (std::size_t i = 0; i < node.links.size(); ++i)
    if (condition(node.links[i])) indices.push_back(static_cast<int>(i));
  return indices;
}

std::vector<int> links_of_port(const Node& node, int port) {
  return links_where(node, [&](const Link& link) {
    return std::ranges::find(link.ports, port) != link.ports.end();
  });
}

bool is_with_host(const Link& link) { return link.from.is_host() || link.to.is_host(); }

bool is_with_nearest_host(const Node& node, const Link& link) {
  if (!is_with_host(link)) return false;
  const MemoryId host = link.from.is_host() ? link.from : link.to;
  const MemoryId gpu = link.from.is_host() ? link.to : link.from;
  return node.gpus[at(gpu.index)].numa == host.index;
}

/// Whether a link from or to `gpu` takes the GPU's link to the host: it says so, or shares a port
/// with one that ends in host memory.
bool is_host_bound(const Node& node, MemoryId gpu, const Link& link) {
  if (is_with_host(link)) return true;
  switch (link.type) {
    case LinkType::pcie:
    case LinkType::bounce:
    case LinkType::c2c: return true;
    case LinkType::nvswitch: return false;
    case LinkType::nvlink: break;
  }
  return std::ranges::any_of(node.links, [&](const Link& other) {
    if (!is_with_host(other) || (other.from != gpu && other.to != gpu)) return false;
    return std::ranges::find_first_of(other.ports, link.ports) != other.ports.end();
  });
}

void add_port(Node& node, std::string name, const std::vector<int>& links) {
  if (links.size() < 2) return;
  for (std::size_t port = 0; port < node.ports.size(); ++port)
    if (node.ports[port].name == name || links_of_port(node, static_cast<int>(port)) == links)
      return;
  double sum_gbps = 0;
  for (const int link : links) {
    node.links[at(link)].ports.push_back(static_cast<int>(node.ports.size()));
    sum_gbps += node.links[at(link)].gbps;
  }
  node.ports.push_back({std::move(name), sum_gbps});
}

/// Ports of the links of one memory: what leaves it, what enters it, and, where the directions
/// share a capacity, both.
struct PortNames {
  std::string_view out;
  std::string_view in;
  std::string_view both;
};

template <typename Condition>
void add_ports(Node& node, MemoryId memory, PortNames names, Condition condition) {
  const auto out =
      links_where(node, [&](const Link& link) { return link.from == memory && condition(link); });
  const auto in =
      links_where(node, [&](const Link& link) { return link.to == memory && condition(link); });
  std::vector<int> both;
  std::ranges::merge(out, in, std::back_inserter(both));
  const std::string id = to_string(memory);
  add_port(node, fmt::format("{}.{}", names.out, id), out);
  add_port(node, fmt::format("{}.{}", names.in, id), in);
  if (!names.both.empty()) add_port(node, fmt::format("{}.{}", names.both, id), both);
}

PortNames host_port_names(const Node& node, MemoryId gpu) {
  const auto link = node.find_link(gpu, MemoryId::host(node.gpus[at(gpu.index)].numa));
  switch (link ? node.links[at(*link)].type : LinkType::pcie) {
    case LinkType::nvlink: return {"nvlink-host-out", "nvlink-host-in", "nvlink-host"};
    case LinkType::c2c: return {"c2c-out", "c2c-in", "c2c"};
    case LinkType::pcie:
    case LinkType::nvswitch:
    case LinkType::bounce: break;
  }
  return {"pcie-out", "pcie-in", "pcie"};
}

}  // namespace

Node measure_capacities(const CudaDriver& driver, const Node& discovered,
                        const ProgressFunction& progress, const MeasureOptions& options) {
  int gpus = 0;
  POLYPATH_CHECK(driver, device_get_count(&gpus));
  if (gpus < static_cast<int>(discovered.gpus.size()))
    throw NoDevice(fmt::format("{} has {} GPUs, the driver {}", discovered.name,
                               discovered.gpus.size(), gpus));

  Node node = discovered;
  add_shared_ports(node);
  const std::size_t total = node.links.size() + node.ports.size() + 3;
  std::size_t done = 0;
  const auto next = [&](const std::string& what) {
    if (progress) progress(done++, total, what);
  };

  next("contexts");
  MeasurementContext set(driver, node, options.bytes);
  for (std::size_t i = 0; i < node.links.size(); ++i) {
    Link& link = node.links[i];
    next(fmt::format("{} to {}", to_string(link.from), to_string(link.to)));
    link.gbps = measure_together_gbps(set, std::array{static_cast<int>(i)}, options.repetitions);
  }
  for (std::size_t i = 0; i < node.ports.size(); ++i) {
    next(fmt::format("port {}", node.ports[i].name));
    const std::vector<int> links = filling_links(node, static_cast<int>(i));
    if (!links.empty()) node.ports[i].gbps = measure_together_gbps(set, links, options.repetitions);
  }
  next("costs");
  node.costs = measure_costs(set, options.repetitions);
  next("staged routes");
  node.costs = measure_staging(set, node.costs, options.repetitions);
  next("done");
  return node;
}

void add_shared_ports(Node& node) {
  for (const MemoryId memory : node.memories()) {
    if (memory.is_host()) {
      add_ports(node, memory, {"host-read", "host-write", "host"}, is_with_host);
      continue;
    }
    // NVLink is full duplex: both directions of one pair reach twice the rate of one. All pairs at
    // once do not, but as a shared capacity that would forbid what two GPUs do every day.
    add_ports(node, memory, {"nvlink-out", "nvlink-in", ""},
              [](const Link& link) { return link.type == LinkType::nvswitch; });
    // Decided before any port is added, because added ports are shared as well.
    const Node before = node;
    add_ports(node, memory, host_port_names(node, memory),
              [&](const Link& link) { return is_host_bound(before, memory, link); });
  }
}

std::vector<int> filling_links(const Node& node, int port) {
  const std::vector<int> sharing = links_of_port(node, port);
  std::vector<int> near;
  std::ranges::copy_if(sharing, std::back_inserter(near),
                       [&](int link) { return is_with_nearest_host(node, node.links[at(link)]); });
  return near.empty() ? sharing : near;
}

}  // namespace polypath
