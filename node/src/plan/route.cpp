#include "plan/route.hpp"

#include <algorithm>

namespace polypath {

std::string_view to_string(RouteKind kind) noexcept {
  switch (kind) {
    case RouteKind::direct: return "direct";
    case RouteKind::via_gpu: return "gpu";
    case RouteKind::via_host: return "host";
  }
  return "?";
}

std::string to_string(const Route& route) {
  return route.staged() ? "via " + to_string(route.via) : "direct";
}

namespace {

/// Up to this number of GPUs every rank stages on all: the contexts fit, and often one rank copies
/// alone.
constexpr std::size_t kMaxUndividedGpus = 4;

/// Whether GPU `via` is in the share of the rank that copies between `src` and `dst`.
bool in_share(const Node& node, MemoryId src, MemoryId dst, MemoryId via, int ranks) {
  if (ranks <= 1 || via.is_host() || (src.is_gpu() && dst.is_gpu())) return true;
  const MemoryId own = src.is_gpu() ? src : dst;
  return node.gpus.size() <= kMaxUndividedGpus || via.index % ranks == own.index % ranks;
}

}  // namespace

std::vector<Route> find_routes(const Node& node, MemoryId src, MemoryId dst,
                               const RouteFilter& filter) {
  std::vector<Route> routes;
  if (src == dst) return routes;

  if (const auto link = node.find_link(src, dst); link && filter.direct)
    routes.push_back({RouteKind::direct, {}, {*link}});

  for (const MemoryId via : node.memories()) {
    if (via == src || via == dst) continue;
    if (via.is_gpu() ? !filter.gpu : !filter.host) continue;
    // Host memory to host memory is not a copy of the GPUs.
    if (via.is_host() && (src.is_host() || dst.is_host())) continue;
    if (std::ranges::find(filter.without, via) != filter.without.end()) continue;
    if (!in_share(node, src, dst, via, filter.ranks)) continue;
    const auto first = node.find_link(src, via);
    const auto second = node.find_link(via, dst);
    if (!first || !second) continue;
    const auto bounced = [&](int link) {
      return node.links[static_cast<std::size_t>(link)].type == LinkType::bounce;
    };
    if (bounced(*first) || bounced(*second)) continue;
    routes.push_back(
        {via.is_gpu() ? RouteKind::via_gpu : RouteKind::via_host, via, {*first, *second}});
  }
  return routes;
}

}  // namespace polypath
