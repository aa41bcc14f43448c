#include "topology/peer_links.hpp"

#include <algorithm>

namespace polypath {

Node without_peer_links(Node node) {
  const auto leg_of = [&](MemoryId from, MemoryId to) -> const Link* {
    const auto index = node.find_link(from, to);
    return index ? &node.links[static_cast<std::size_t>(*index)] : nullptr;
  };
  const auto near = [&](MemoryId gpu) {
    return MemoryId::host(node.gpus[static_cast<std::size_t>(gpu.index)].numa);
  };
  std::vector<Link> links = node.links;
  for (Link& link : links) {
    if (!link.from.is_gpu() || !link.to.is_gpu() || link.type == LinkType::bounce) continue;
    const Link* const down = leg_of(link.from, near(link.from));
    const Link* const up = leg_of(near(link.from), link.to);
    if (down == nullptr || up == nullptr) continue;
    const Link& slower = down->gbps <= up->gbps ? *down : *up;
    link.type = LinkType::bounce;
    link.gbps = slower.gbps;
    link.nominal_gbps = slower.nominal_gbps;
    link.width = 0;
    link.ports = down->ports;
    for (const int port : up->ports)
      if (std::ranges::find(link.ports, port) == link.ports.end()) link.ports.push_back(port);
  }
  node.links = std::move(links);
  return node;
}

}  // namespace polypath
