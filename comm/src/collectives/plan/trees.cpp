#include "collectives/plan/trees.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "collectives/plan/islands.hpp"
#include "plan/flow.hpp"
#include "plan/simplex.hpp"

namespace polypath {
namespace {

/// Up to this number of ranks every tree is listed: 16 of each owner without host memories.
constexpr int kAllTrees = 4;
/// Up to this number all_to_all may go by other GPUs: the linear program grows with the cube.
constexpr int kAllRoutes = 4;

class TreeFinder {
 public:
  TreeFinder(const Node& node, const CollectiveRequest& request, const TreeFilter& filter)
      : node_(node), request_(request), filter_(filter) {}

  std::vector<CollectiveTree> find() {
    for (const TreeKind kind : {TreeKind::in, TreeKind::out}) {
      if (!needed(kind)) continue;
      for (int owner = 0; owner < request_.ranks(); ++owner)
        if (owns(owner)) find(kind, owner);
    }
    return std::move(trees_);
  }

 private:
  using Parents = std::vector<MemoryId>;

  [[nodiscard]] MemoryId memory(int rank) const {
    return MemoryId::gpu(request_.gpus[static_cast<std::size_t>(rank)]);
  }

  [[nodiscard]] bool needed(TreeKind kind) const {
    switch (request_.op) {
      case CollectiveOp::allreduce: return true;
      case CollectiveOp::reduce_scatter:
      case CollectiveOp::reduce: return kind == TreeKind::in;
      case CollectiveOp::all_gather:
      case CollectiveOp::broadcast: return kind == TreeKind::out;
      case CollectiveOp::all_to_all: return false;
    }
    return false;
  }

  [[nodiscard]] bool owns(int rank) const {
    const bool rooted =
        request_.op == CollectiveOp::broadcast || request_.op == CollectiveOp::reduce;
    return !rooted || rank == request_.root;
  }

  void find(TreeKind kind, int owner) {
    const int ranks = request_.ranks();
    Parents parents(static_cast<std::size_t>(ranks), memory(owner));
    add(kind, owner, parents);
    if (filter_.stars_only) return;
    if (ranks <= kAllTrees) {
      choose_each(kind, owner, 0, parents);
    } else {
      choose_by_islands(kind, owner);
      pass_one_rank(kind, owner);
    }
  }

  /// All others by way of one rank: how a root's slices go.
  void pass_one_rank(TreeKind kind, int owner) {
    for (int between = 0; between < request_.ranks(); ++between) {
      if (between == owner) continue;
      Parents parents(request_.gpus.size(), memory(between));
      parents[static_cast<std::size_t>(between)] = memory(owner);
      parents[static_cast<std::size_t>(owner)] = memory(owner);
      add(kind, owner, parents);
    }
  }

  /// Every parent for every rank from `rank` on.
  void choose_each(TreeKind kind, int owner, int rank, Parents& parents) {
    if (rank == request_.ranks()) {
      add(kind, owner, parents);
      return;
    }
    if (rank == owner) {
      choose_each(kind, owner, rank + 1, parents);
      return;
    }
    MemoryId& parent = parents[static_cast<std::size_t>(rank)];
    for (int other = 0; other < request_.ranks(); ++other) {
      if (other == rank) continue;
      parent = memory(other);
      choose_each(kind, owner, rank + 1, parents);
    }
    for (const MemoryId host : hosts()) {
      parent = host;
      choose_each(kind, owner, rank + 1, parents);
    }
    parent = memory(owner);
  }

  /// One way for each island's ranks; all other islands than the owner's take ways of one kind.
  void choose_by_islands(TreeKind kind, int owner) {
    const auto islands = find_islands(node_, request_.gpus, true);
    std::size_t largest = 0;
    for (const auto& island : islands) largest = std::max(largest, island.size());
    // Ways: directly; by the near host memory of each; by host memory 0, 1, ...; by the island's
    // first, second, ... rank.
    const int by_host = 2;
    const int by_rank = by_host + static_cast<int>(hosts().size());
    const int ways = by_rank + (islands.size() > 1 ? static_cast<int>(largest) : 0);
    const auto set = [&](Parents& parents, const std::vector<int>& island, int way) {
      for (const int rank : island) {
        if (rank == owner) continue;
        MemoryId& parent = parents[static_cast<std::size_t>(rank)];
        if (way == 1 && !hosts().empty()) {
          parent = near_host(rank);
        } else if (way >= by_host && way < by_rank) {
          parent = MemoryId::host(way - by_host);
        } else if (way >= by_rank) {
          const int leader = island[static_cast<std::size_t>(way - by_rank) % island.size()];
          parent = memory(rank == leader ? owner : leader);
        }
      }
    };
    for (int own = 0; own < by_rank; ++own) {
      for (int others = 0; others < ways; ++others) {
        Parents parents(request_.gpus.size(), memory(owner));
        for (const auto& island : islands)
          set(parents, island, std::ranges::find(island, owner) != island.end() ? own : others);
        add(kind, owner, parents);
      }
    }
    for (std::size_t lane = 0; lane < largest && islands.size() > 2; ++lane)
      chain(kind, owner, islands, lane);
  }

  /// From leader to leader, island by island, to an owner that leads the last.
  void chain(TreeKind kind, int owner, const std::vector<std::vector<int>>& islands,
             std::size_t lane) {
    const auto leader = [&](std::size_t island) {
      return islands[island][lane % islands[island].size()];
    };
    if (leader(islands.size() - 1) != owner) return;
    Parents parents(request_.gpus.size(), memory(owner));
    for (std::size_t i = 0; i + 1 < islands.size(); ++i)
      for (const int rank : islands[i])
        parents[static_cast<std::size_t>(rank)] =
            memory(rank == leader(i) ? leader(i + 1) : leader(i));
    add(kind, owner, parents);
  }

  [[nodiscard]] std::vector<MemoryId> hosts() const {
    std::vector<MemoryId> hosts;
    if (filter_.host)
      for (std::size_t i = 0; i < node_.hosts.size(); ++i)
        hosts.push_back(MemoryId::host(static_cast<int>(i)));
    return hosts;
  }

  [[nodiscard]] MemoryId near_host(int rank) const {
    return MemoryId::host(node_.gpus[static_cast<std::size_t>(memory(rank).index)].numa);
  }

  /// Adds the tree, if it is one, all its links exist, and it is new.
  void add(TreeKind kind, int owner, const Parents& parents) {
    CollectiveTree tree{kind, owner, parents, {}};
    std::map<int, int> loads;
    const auto cross = [&](MemoryId child, MemoryId parent) {
      const auto link =
          kind == TreeKind::in ? node_.find_link(child, parent) : node_.find_link(parent, child);
      if (link) ++loads[*link];
      return link.has_value();
    };
    std::set<MemoryId> served;  // host memories that have the owner's data already
    for (int rank = 0; rank < request_.ranks(); ++rank) {
      if (rank == owner) continue;
      if (!reaches(owner, rank, parents)) return;
      const MemoryId parent = parents[static_cast<std::size_t>(rank)];
      if (!cross(memory(rank), parent)) return;
      if (!parent.is_host()) continue;
      const bool again = kind == TreeKind::out && !served.insert(parent).second;
      if (!again && !cross(parent, memory(owner))) return;
    }
    tree.loads.assign(loads.begin(), loads.end());
    if (known_.insert({{kind == TreeKind::in ? 0 : 1, owner}, tree.loads}).second)
      trees_.push_back(std::move(tree));
  }

  /// Whether the way from `rank` from parent to parent ends at the owner.
  [[nodiscard]] bool reaches(int owner, int rank, const Parents& parents) const {
    for (int steps = 0; steps < request_.ranks(); ++steps) {
      if (rank == owner) return true;
      const MemoryId parent = parents[static_cast<std::size_t>(rank)];
      if (parent.is_host()) return true;
      const auto next = std::ranges::find(request_.gpus, parent.index);
      rank = static_cast<int>(next - request_.gpus.begin());
    }
    return rank == owner;
  }

  const Node& node_;
  const CollectiveRequest& request_;
  const TreeFilter& filter_;
  std::vector<CollectiveTree> trees_;
  std::set<std::pair<std::pair<int, int>, std::vector<std::pair<int, int>>>> known_;
};

/// Capacities of all links, then of all ports.
std::vector<double> capacities(const Node& node, double switch_share) {
  std::vector<double> gbps;
  std::vector<double> port_share(node.ports.size(), 1);
  for (const Link& link : node.links) {
    const double share = link.type == LinkType::nvswitch ? switch_share : 1;
    gbps.push_back(link.gbps * share);
    for (const int port : link.ports)
      port_share[static_cast<std::size_t>(port)] =
          std::min(port_share[static_cast<std::size_t>(port)], share);
  }
  for (std::size_t i = 0; i < node.ports.size(); ++i)
    gbps.push_back(node.ports[i].gbps * port_share[i]);
  return gbps;
}

double all_to_all_limit(const Node& node, const CollectiveRequest& request,
                        const TreeFilter& filter) {
  RouteFilter routes;
  routes.gpu = !filter.stars_only && request.ranks() <= kAllRoutes;
  routes.host = filter.host;
  std::vector<Demand> demands;
  for (const int from : request.gpus)
    for (const int to : request.gpus)
      if (from != to)
        demands.push_back({1, find_routes(node, MemoryId::gpu(from), MemoryId::gpu(to), routes)});
  Node shared = node;
  const auto gbps = capacities(node, filter.switch_share);
  for (std::size_t i = 0; i < shared.links.size(); ++i) shared.links[i].gbps = gbps[i];
  for (std::size_t i = 0; i < shared.ports.size(); ++i)
    shared.ports[i].gbps = gbps[shared.links.size() + i];
  // Each of the n (n - 1) demands is an n-th of a rank's message.
  const auto ranks = static_cast<double>(request.ranks());
  return maximum_flow(shared, demands).gbps / (ranks - 1);
}

}  // namespace

bool CollectiveTree::star(std::span<const int> gpus) const noexcept {
  const MemoryId root = MemoryId::gpu(gpus[static_cast<std::size_t>(owner)]);
  return std::ranges::all_of(parents, [&](MemoryId parent) { return parent == root; });
}

std::vector<CollectiveTree> find_trees(const Node& node, const CollectiveRequest& request,
                                       const TreeFilter& filter) {
  return TreeFinder(node, request, filter).find();
}

TreePacking pack_trees(const Node& node, const CollectiveRequest& request,
                       const std::vector<CollectiveTree>& trees, const TreeFilter& filter) {
  TreePacking packing;
  packing.tree_gbps.assign(trees.size(), 0);
  if (trees.empty()) return packing;

  // Variables: the rate of the message; for each owner that of its slice; each tree.
  const std::size_t owners = request.gpus.size();
  const std::size_t first_tree = 1 + owners;
  LinearProgram program;
  program.variables = static_cast<int>(first_tree + trees.size());
  const auto row = [&](double bound) -> std::vector<double>& {
    program.bounds.push_back(bound);
    return program.rows.emplace_back(static_cast<std::size_t>(program.variables), 0.0);
  };

  std::set<TreeKind> kinds;
  std::set<int> owning;
  for (const CollectiveTree& tree : trees) {
    kinds.insert(tree.kind);
    owning.insert(tree.owner);
  }
  if (request.by_parts()) {  // every slice is as large as the others
    for (std::size_t owner = 0; owner < owners; ++owner) {
      auto& even = row(0);
      even[0] = 1.0 / static_cast<double>(owners);
      even[1 + owner] = -1;
    }
  } else {
    auto& sum = row(0);
    sum[0] = 1;
    for (const int owner : owning) sum[1 + static_cast<std::size_t>(owner)] = -1;
  }
  for (const TreeKind kind : kinds) {
    for (std::size_t owner = 0; owner < owners; ++owner) {
      auto& carried = row(0);
      carried[1 + owner] = 1;
      for (std::size_t t = 0; t < trees.size(); ++t)
        if (trees[t].kind == kind && trees[t].owner == static_cast<int>(owner))
          carried[first_tree + t] = -1;
    }
  }
  std::map<int, std::vector<std::pair<std::size_t, int>>> use;  // resource -> (tree, times)
  for (std::size_t t = 0; t < trees.size(); ++t) {
    std::map<int, int> times;
    for (const auto& [link, count] : trees[t].loads) {
      times[link] += count;
      for (const int port : node.links[static_cast<std::size_t>(link)].ports)
        times[static_cast<int>(node.links.size()) + port] += count;
    }
    for (const auto& [resource, count] : times) use[resource].emplace_back(t, count);
  }
  const auto gbps = capacities(node, filter.switch_share);
  for (const auto& [resource, users] : use) {
    auto& carried = row(gbps[static_cast<std::size_t>(resource)]);
    for (const auto& [tree, times] : users) carried[first_tree + tree] = times;
  }
  std::vector<double> rate(static_cast<std::size_t>(program.variables), 0.0);
  std::vector<double> traffic = rate;
  rate[0] = 1;
  for (std::size_t t = 0; t < trees.size(); ++t)
    for (const auto& [link, times] : trees[t].loads) traffic[first_tree + t] -= times;
  program.objectives = {rate, traffic};

  const std::vector<double> x = solve(program);
  packing.gbps = x[0];
  std::copy(x.begin() + static_cast<std::ptrdiff_t>(first_tree), x.end(),
            packing.tree_gbps.begin());
  return packing;
}

double collective_limit_gbps(const Node& node, const CollectiveRequest& request,
                             const TreeFilter& filter) {
  if (request.ranks() < 2) return 0;
  if (request.op == CollectiveOp::all_to_all) return all_to_all_limit(node, request, filter);
  return pack_trees(node, request, find_trees(node, request, filter), filter).gbps;
}

}  // namespace polypath
