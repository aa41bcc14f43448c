#include "exec/emulated_mesh/mesh_node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/error.hpp"

namespace polypath {
namespace {

/// The capacities of tables and measurements are not exact.
constexpr double kSlack = 1.02;

bool between_gpus(const Link& link) { return link.from.is_gpu() && link.to.is_gpu(); }

/// Links that use a port, as far as a condition counts them.
template <typename Condition>
std::ptrdiff_t users(const Node& node, std::size_t port, Condition counts) {
  return std::ranges::count_if(node.links, [&](const Link& link) {
    return counts(link) &&
           std::ranges::find(link.ports, static_cast<int>(port)) != link.ports.end();
  });
}

/// Whether a port goes when the links between GPUs have capacities of their own.
bool is_only_between_gpus(const Node& node, std::size_t port) {
  return users(node, port, is_emulated) > 0 &&
         users(node, port, [](const Link& link) { return !between_gpus(link); }) == 0;
}

void require_capacity(const Node& node, double gbps) {
  if (std::ranges::none_of(node.links, is_emulated))
    throw InvalidArgument(fmt::format(
        "a mesh cannot be emulated on {}: it has no NVLink between two GPUs", node.name));
  for (const Link& link : node.links)
    if (is_emulated(link) && gbps > link.gbps * kSlack)
      throw InvalidArgument(
          fmt::format("a mesh of {} GB/s cannot be emulated: {} to {} carries {:.4g} GB/s", gbps,
                      to_string(link.from), to_string(link.to), link.gbps));
  for (std::size_t port = 0; port < node.ports.size(); ++port) {
    const auto links = users(node, port, is_emulated);
    if (is_only_between_gpus(node, port) &&
        static_cast<double>(links) * gbps > node.ports[port].gbps * kSlack)
      throw InvalidArgument(
          fmt::format("a mesh of {} GB/s cannot be emulated: {} links of {} GB/s share {}, which "
                      "carries {:.4g} GB/s",
                      gbps, links, gbps, node.ports[port].name, node.ports[port].gbps));
  }
}

}  // namespace

bool is_emulated(const Link& link) noexcept {
  return between_gpus(link) && (link.type == LinkType::nvlink || link.type == LinkType::nvswitch);
}

Node emulated_mesh(const Node& node, double gbps) {
  require_capacity(node, gbps);
  Node mesh = node;
  mesh.ports.clear();
  std::vector<int> renumbered(node.ports.size(), -1);
  for (std::size_t port = 0; port < node.ports.size(); ++port) {
    if (is_only_between_gpus(node, port)) continue;
    renumbered[port] = static_cast<int>(mesh.ports.size());
    mesh.ports.push_back(node.ports[port]);
  }
  for (Link& link : mesh.links) {
    std::vector<int> ports;
    for (const int port : link.ports)
      if (const int kept = renumbered[static_cast<std::size_t>(port)]; kept >= 0)
        ports.push_back(kept);
    link.ports = std::move(ports);
    if (!is_emulated(link)) continue;
    link.type = LinkType::nvlink;
    link.gbps = gbps;
    link.nominal_gbps = 0;
    link.width = 0;
  }
  const std::string what = fmt::format(" (emulated mesh, {:g} GB/s a link)", gbps);
  mesh.name += what;
  if (!mesh.title.empty()) mesh.title += what;
  return mesh;
}

}  // namespace polypath
