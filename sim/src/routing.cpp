#include "routing.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "failure.hpp"

namespace polypath::sim {
namespace {

// Copies within one memory. Orders of magnitude, not measured: nothing of interest depends on them.
constexpr double kGpuLocalGbps = 1500;
constexpr double kHostLocalGbps = 10;

// The share of the slower leg's rate that a copy reaches which the driver carries through host
// memory. 37 GB/s were measured where each leg reaches 55.4 (4 x H200).
constexpr double kBounceEfficiency = 37.0 / 55.4;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

Routing::Routing(const Node& node) : node_(node) {}

std::vector<Capacity> Routing::capacities() const {
  std::vector<Capacity> all;
  for (const Link& link : node_.links) all.emplace_back(link.gbps);
  for (const Port& port : node_.ports) all.emplace_back(port.gbps, true);
  all.insert(all.end(), node_.gpus.size(), kGpuLocalGbps);
  all.insert(all.end(), node_.hosts.size(), kHostLocalGbps);
  all.insert(all.end(), node_.gpus.size(), node_.costs.memory_gbps);
  for (const Port& port : node_.ports) all.emplace_back(port.gbps * node_.costs.switch_share, true);
  return all;
}

CopyRoute Routing::route(int issuer, MemoryId from, MemoryId to, bool may_reach) const {
  if (!may_reach) return bounced(from, to);
  const MemoryId engine = MemoryId::gpu(issuer);
  CopyRoute route;
  if (from == engine && to == engine) {
    route.demand.resources = {local_resource(engine)};
    return route;
  }
  const bool complete = (from == engine || add_hop(route, from, engine)) &&
                        (to == engine || add_hop(route, engine, to));
  return complete ? route : bounced(from, to);
}

CopyRoute Routing::kernel_route(int device, MemoryId from, MemoryId to) const {
  const std::size_t memories =
      node_.links.size() + node_.ports.size() + node_.gpus.size() + node_.hosts.size();
  CopyRoute route;
  if (from == to) {
    route.demand.resources = {static_cast<int>(memories) + from.index};
  } else {
    route = this->route(device, from, to, true);
    for (const int link : route.links)
      if (const Link& on = node_.links[at(link)]; on.type == LinkType::nvswitch)
        for (const int port : on.ports)
          route.demand.resources.push_back(static_cast<int>(memories + node_.gpus.size()) + port);
  }
  route.demand.hands_over = false;
  return route;
}

CopyRoute Routing::local_route(MemoryId from, MemoryId to) const {
  CopyRoute route;
  route.demand.resources = {local_resource(from)};
  if (to != from) route.demand.resources.push_back(local_resource(to));
  return route;
}

/// Adds the link; false when there is none. A host memory that a GPU has no link to is reached by
/// way of the GPU's own: what lies between the sockets is not modelled.
bool Routing::add_hop(CopyRoute& route, MemoryId from, MemoryId to) const {
  std::optional<int> index = node_.find_link(from, to);
  if (!index && from.is_host() && to.is_gpu())
    index = node_.find_link(MemoryId::host(node_.gpus[at(to.index)].numa), to);
  if (!index && from.is_gpu() && to.is_host())
    index = node_.find_link(from, MemoryId::host(node_.gpus[at(from.index)].numa));
  if (!index) return false;
  const Link& link = node_.links[at(*index)];
  route.links.push_back(*index);
  route.demand.resources.push_back(*index);
  for (const int port : link.ports)
    route.demand.resources.push_back(static_cast<int>(node_.links.size()) + port);
  if (link.type == LinkType::bounce) route.is_bounced = true;
  return true;
}

CopyRoute Routing::bounced(MemoryId from, MemoryId to) const {
  CopyRoute route;
  if (const auto link = node_.find_link(from, to);
      link && node_.links[at(*link)].type == LinkType::bounce) {
    add_hop(route, from, to);
    return route;
  }
  const auto host_of = [this](MemoryId id) {
    return id.is_host() ? id : MemoryId::host(node_.gpus[at(id.index)].numa);
  };
  if (from.is_gpu()) add_hop(route, from, host_of(from));
  if (to.is_gpu()) add_hop(route, host_of(to), to);
  for (const int link : route.links)
    route.demand.max_gbps =
        std::min(route.demand.max_gbps, kBounceEfficiency * node_.links[at(link)].gbps);
  route.is_bounced = true;
  return route;
}

int Routing::local_resource(MemoryId memory) const {
  const std::size_t first = node_.links.size() + node_.ports.size();
  const std::size_t offset = memory.is_gpu() ? 0 : node_.gpus.size();
  return static_cast<int>(first + offset) + memory.index;
}

TrafficFlow traffic_flow(const Node& node, const BackgroundTraffic& traffic) {
  const auto link = node.find_link(traffic.from, traffic.to);
  require(link.has_value(), CUDA_ERROR_INVALID_VALUE);
  const bool has_host_side = traffic.from.is_host() || traffic.to.is_host();
  const int gpu = traffic.from.is_gpu() ? traffic.from.index : traffic.to.index;
  TrafficFlow flow;
  flow.block = Routing(node).route(gpu, traffic.from, traffic.to, true).demand;
  flow.block.bytes = static_cast<double>(traffic.block_bytes);
  flow.engine = has_host_side ? *link : -1;
  flow.queue_blocks = traffic.queue_blocks;
  flow.on_us = traffic.on_us;
  flow.off_us = traffic.off_us;
  flow.begin_us = traffic.begin_us;
  if (traffic.end_us > 0) flow.end_us = traffic.end_us;
  flow.block_us =
      node.costs.copy_gap_us + flow.block.bytes / (node.links[at(*link)].gbps * kBytesPerGbpsUs);
  return flow;
}

}  // namespace polypath::sim
