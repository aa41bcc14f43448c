#include "plan/handover.hpp"

#include <algorithm>
#include <cstddef>

namespace polypath {
namespace {

/// Calls `use` with the index of the link, and of each of its ports behind those of the links.
template <typename Use>
void for_each_resource(const Node& node, int link, const Use& use) {
  use(static_cast<std::size_t>(link));
  for (const int port : node.links[static_cast<std::size_t>(link)].ports)
    use(node.links.size() + static_cast<std::size_t>(port));
}

}  // namespace

double handover_us(const Node& node, const std::vector<std::vector<RouteShare>>& shares) {
  std::vector<int> starts(node.links.size() + node.ports.size(), 0);
  for (const auto& routes : shares)
    for (const RouteShare& share : routes)
      for (const int leg : share.route.legs)
        for_each_resource(node, leg, [&](std::size_t one) { starts[one] += share.chunks; });
  double most = 0;
  for (const auto& routes : shares) {
    for (const RouteShare& share : routes) {
      double longest = 0;
      double sum = 0;
      for (const int leg : share.route.legs) {
        int halts = 0;  // starts of others, on the link or port that has the most
        for_each_resource(node, leg, [&](std::size_t one) {
          halts = std::max(halts, starts[one] - share.chunks);
        });
        longest = std::max(longest, static_cast<double>(halts));
        sum += halts;
      }
      // Legs run side by side, but for one chunk.
      most = std::max(most, longest + (sum - longest) / share.chunks);
    }
  }
  return most * node.costs.copy_handover_us;
}

}  // namespace polypath
