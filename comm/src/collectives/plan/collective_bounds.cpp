#include "collectives/plan/collective_bounds.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "collectives/plan/kernel_cost.hpp"
#include "collectives/plan/relays.hpp"
#include "topology/default_graph.hpp"

namespace polypath {
namespace {

double known(std::optional<double>& memo, const auto& compute) {
  if (!memo) memo = compute();
  return *memo;
}

/// The node without what host memory carries: what meets there stays in the CPU's cache
/// (kernel_cost.cpp).
Node without_memory_ports(Node node) {
  for (Link& link : node.links)
    std::erase_if(link.ports, [&](int port) {
      return is_memory_port(node.ports[static_cast<std::size_t>(port)]);
    });
  return node;
}

}  // namespace

double CollectiveBounds::limit(TreeFilter filter) const {
  double gbps = why_no_peer_access(node_, request_).empty()
                    ? collective_limit_gbps(node_, request_, filter)
                    : collective_limit_gbps(without_memory_ports(node_), request_, filter);
  if (request_.nodes > 1 && !filter.stars_only) {
    const auto nodes = static_cast<double>(request_.nodes);
    const double network = request_.network_gbps * nodes / (2 * (nodes - 1));
    gbps = request_.ranks() == 1 ? network : std::min(gbps, network);
  }
  return gbps * request_.bus_factor();
}

double CollectiveBounds::bus_gbps() {
  return known(all_, [&] { return limit({}); });
}

double CollectiveBounds::link_bus_gbps() {
  return known(links_, [&] { return limit({.host = false}); });
}

double CollectiveBounds::host_gain() {
  const double links = link_bus_gbps();
  return links > 0 ? bus_gbps() / links - 1 : 0;
}

double CollectiveBounds::bus_gbps(Algorithm algorithm, std::span<const int> ring) {
  switch (algorithm) {
    case Algorithm::none: return 0;
    case Algorithm::cells:
    case Algorithm::lines:
    case Algorithm::flat:
    case Algorithm::pairwise: {
      // A root's slices may pass their owners: trees of depth two.
      const bool rooted =
          request_.op == CollectiveOp::broadcast || request_.op == CollectiveOp::reduce;
      if (rooted) return link_bus_gbps();
      return known(stars_, [&] { return limit({.stars_only = true, .host = false}); });
    }
    case Algorithm::relayed:
      return bus_gbps(Algorithm::pairwise, ring) * relay_gain(node_, request_);
    case Algorithm::hierarchical: return link_bus_gbps();
    case Algorithm::host_trees:
    case Algorithm::mixed: return bus_gbps();
    case Algorithm::ring: return ring_gbps(ring);
  }
  return 0;
}

double CollectiveBounds::ring_gbps(std::span<const int> ring) const {
  const auto gpu = [&](std::size_t place) {
    return MemoryId::gpu(request_.gpus[static_cast<std::size_t>(ring[place % ring.size()])]);
  };
  LinkBytes bytes(node_.links.size(), 0);
  for (std::size_t p = 0; p < ring.size(); ++p) {
    const auto link = node_.find_link(gpu(p), gpu(p + 1));
    if (!link) return 0;
    bytes[static_cast<std::size_t>(*link)] += 1;
  }
  // Every hop carries the bus factor's part of the message.
  const double us = drain(node_, bytes, 1).us;
  return us > 0 ? 1 / (us * kBytesPerGbpsUs) : 0;
}

}  // namespace polypath
