#include "plan/pair_class.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>

namespace polypath {
namespace {

const char* end_name(const Node& node, MemoryId memory, MemoryId other) {
  if (memory.is_gpu()) return "gpu";
  const bool near =
      !other.is_gpu() || node.gpus[static_cast<std::size_t>(other.index)].numa == memory.index;
  return near ? "host" : "far host";
}

}  // namespace

std::string pair_class(const Node& node, MemoryId src, MemoryId dst) {
  std::string link = "no link";
  if (const auto index = node.find_link(src, dst)) {
    const Link& direct = node.links[static_cast<std::size_t>(*index)];
    link = direct.width > 0 ? fmt::format("{} x{}", to_string(direct.type), direct.width)
                            : std::string(to_string(direct.type));
  }
  const auto routes = find_routes(node, src, dst, RouteFilter{});
  const auto count = [&](RouteKind kind) { return std::ranges::count(routes, kind, &Route::kind); };
  return fmt::format("{} to {}, {}, via {} gpu, {} host", end_name(node, src, dst),
                     end_name(node, dst, src), link, count(RouteKind::via_gpu),
                     count(RouteKind::via_host));
}

std::vector<Request> one_of_each_class(const Node& node) {
  std::vector<Request> pairs;
  std::set<std::string> seen;
  const auto consider = [&](MemoryId src, MemoryId dst) {
    if (src != dst && seen.insert(pair_class(node, src, dst)).second)
      pairs.push_back({src, dst, 0});
  };
  const auto memories = node.memories();
  for (const MemoryId src : memories)
    for (const MemoryId dst : memories)
      if (src.is_gpu() && dst.is_gpu()) consider(src, dst);
  for (const MemoryId src : memories)
    for (const MemoryId dst : memories)
      if (src.is_gpu() != dst.is_gpu()) consider(src, dst);
  return pairs;
}

}  // namespace polypath
