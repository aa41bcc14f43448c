#include "collectives/plan/relays.hpp"

#include <algorithm>
#include <limits>

namespace polypath {
namespace {

double gbps_between(const Node& node, int from, int to) {
  const auto link = node.find_link(MemoryId::gpu(from), MemoryId::gpu(to));
  if (!link) return 0;
  const Link& entry = node.links[static_cast<std::size_t>(*link)];
  return entry.type == LinkType::nvlink && entry.ports.empty() ? entry.gbps : 0;
}

/// The slowest link of a relay from and to the ranks. 0: it lacks one of its own.
double relay_gbps(const Node& node, const CollectiveRequest& request, int relay) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const int gpu : request.gpus)
    slowest = std::min({slowest, gbps_between(node, gpu, relay), gbps_between(node, relay, gpu)});
  return slowest;
}

/// The slowest link between two ranks, of any type.
double rank_gbps(const Node& node, const CollectiveRequest& request) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const int from : request.gpus)
    for (const int to : request.gpus) {
      if (from == to) continue;
      const auto link = node.find_link(MemoryId::gpu(from), MemoryId::gpu(to));
      slowest = std::min(slowest, link ? node.links[static_cast<std::size_t>(*link)].gbps : 0.0);
    }
  return slowest;
}

}  // namespace

std::vector<int> usable_relays(const Node& node, const CollectiveRequest& request) {
  std::vector<int> relays;
  for (const int gpu : request.relays)
    if (relay_gbps(node, request, gpu) > 0) relays.push_back(gpu);
  return relays;
}

std::string why_no_relays(const Node& node, const CollectiveRequest& request) {
  if (request.relays.empty()) return "no GPU is idle that all ranks may use";
  if (!usable_relays(node, request).empty()) return {};
  const bool is_switched = std::ranges::any_of(
      node.links, [](const Link& link) { return link.type == LinkType::nvswitch; });
  return is_switched ? "over an NVSwitch the ranks' own ports decide: a GPU between adds nothing"
                     : "no idle GPU has links of its own with all ranks";
}

double relay_rate(const Node& node, const CollectiveRequest& request, int relay) {
  return relay_gbps(node, request, relay) / (request.ranks() - 1);
}

double relay_gain(const Node& node, const CollectiveRequest& request) {
  const double direct = rank_gbps(node, request);
  double all = direct;
  for (const int gpu : usable_relays(node, request)) all += relay_rate(node, request, gpu);
  return direct > 0 ? all / direct : 1;
}

}  // namespace polypath
