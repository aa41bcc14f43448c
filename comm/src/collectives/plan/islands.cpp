#include "collectives/plan/islands.hpp"

#include <algorithm>
#include <bit>
#include <functional>

namespace polypath {
namespace {

/// Links of one kind differ by less than this; links of two kinds by more.
constexpr double kAlike = 0.75;

/// Ranks by connection, in the order of their lowest rank.
std::vector<std::vector<int>> components(int ranks, const std::function<bool(int, int)>& joined) {
  std::vector<std::vector<int>> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto part = std::ranges::find_if(parts, [&](const std::vector<int>& members) {
      return std::ranges::any_of(members, [&](int member) { return joined(member, rank); });
    });
    if (part == parts.end()) {
      parts.push_back({rank});
    } else {
      part->push_back(rank);
    }
  }
  return parts;
}

bool parts_well(const std::vector<std::vector<int>>& islands,
                const std::function<bool(int, int)>& joined) {
  if (islands.size() < 2) return false;
  // A rank may be alone in its island, but not every one.
  if (std::ranges::all_of(islands, [](const auto& island) { return island.size() < 2; }))
    return false;
  for (const std::vector<int>& island : islands) {
    for (const int a : island)
      for (const int b : island)
        if (a != b && !joined(a, b)) return false;
  }
  return true;
}

}  // namespace

double peer_gbps(const Node& node, int from_gpu, int to_gpu) noexcept {
  const auto link = node.find_link(MemoryId::gpu(from_gpu), MemoryId::gpu(to_gpu));
  if (!link) return 0;
  const Link& it = node.links[static_cast<std::size_t>(*link)];
  return it.type == LinkType::bounce ? 0 : it.gbps;
}

std::vector<std::vector<int>> find_islands(const Node& node, const std::vector<int>& gpus,
                                           bool by_socket) {
  const int ranks = static_cast<int>(gpus.size());
  const auto gpu = [&](int rank) { return gpus[static_cast<std::size_t>(rank)]; };
  const auto rate = [&](int a, int b) {
    return std::min(peer_gbps(node, gpu(a), gpu(b)), peer_gbps(node, gpu(b), gpu(a)));
  };
  double best = 0;
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < a; ++b) best = std::max(best, rate(a, b));
  const auto linked = [&](int a, int b) { return best > 0 && rate(a, b) >= kAlike * best; };
  auto islands = components(ranks, linked);
  if (parts_well(islands, linked)) return islands;

  if (by_socket) {
    const auto near = [&](int a, int b) {
      return node.gpus[static_cast<std::size_t>(gpu(a))].numa ==
             node.gpus[static_cast<std::size_t>(gpu(b))].numa;
    };
    islands = components(ranks, near);
    if (parts_well(islands, near)) return islands;
  }
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  return {all};
}

bool in_rank_order(const std::vector<std::vector<int>>& islands) noexcept {
  int next = 0;
  for (const std::vector<int>& island : islands)
    for (const int rank : island)
      if (rank != next++) return false;
  return true;
}

bool are_halves_of_tree(const std::vector<std::vector<int>>& islands) noexcept {
  if (islands.size() != 2 || !in_rank_order(islands)) return false;
  const std::size_t ranks = islands[0].size() + islands[1].size();
  return islands[0].size() == std::bit_floor(ranks - 1);
}

}  // namespace polypath
