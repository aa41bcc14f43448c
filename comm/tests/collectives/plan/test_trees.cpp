// Trees and how much of them fits at once: limits of known nodes against what can be counted by
// hand, and what holds on every node.
#include <gtest/gtest.h>

#include "collectives/plan/trees.hpp"
#include "known_node.hpp"
#include "plan_inputs.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

CollectiveRequest request_of(CollectiveOp op, int ranks) {
  return request_of_bytes(op, DataType::float32, 1 << 20, ranks);
}

TEST(Trees, LimitsOfKnownNodes) {
  struct Row {
    const char* node;
    CollectiveOp op;
    int ranks;
    double stars, links, all;  ///< bus GB/s
  };
  constexpr auto kAll = CollectiveOp::allreduce;
  const std::vector<Row> rows = {
      // 777 in both directions together, and host memory in the gather.
      {"hgx-h200-x4", kAll, 4, 388.5, 388.5, 0},
      {"hgx-h200-x4", kAll, 2, 388.5, 388.5, 0},
      // Three links of each GPU.
      {"narval", kAll, 4, 279, 279, 297.75},
      {"beluga", kAll, 4, 138, 138, 147},
      {"cedar", kAll, 4, 141, 141, 0},
      {"marenostrum5", kAll, 4, 360, 360, 0},
      // Across the X bus 58 GB/s, once with partial sums and once with results; stars cross twice.
      {"mist", kAll, 4, 43.5, 87, 87},
      {"mist", CollectiveOp::all_gather, 4, 43.5, 87, 0},
      {"narval", CollectiveOp::reduce_scatter, 4, 279, 279, 0},
      {"narval", CollectiveOp::all_to_all, 4, 279, 279, 0},
      {"narval", CollectiveOp::broadcast, 4, 93, 279, 0},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.node) + " " + std::string(to_string(row.op)));
    const Node node = known(row.node);
    const auto request = request_of(row.op, row.ranks);
    const double bus = request.bus_factor();
    TreeFilter stars{.stars_only = true, .host = false};
    TreeFilter links{.host = false};
    const double all = collective_limit_gbps(node, request, {}) * bus;
    EXPECT_NEAR(collective_limit_gbps(node, request, stars) * bus, row.stars, 0.01);
    EXPECT_NEAR(collective_limit_gbps(node, request, links) * bus, row.links, 0.01);
    if (row.all > 0) {
      EXPECT_NEAR(all, row.all, 0.01);
    }
    EXPECT_GE(all, row.links - 1e-6);
  }
}

TEST(Trees, TreeReachesOwnerFromEveryRank) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Node node = random_node(random);
    const auto request =
        request_of(CollectiveOp::allreduce, pick(random, 2, static_cast<int>(node.gpus.size())));
    for (const CollectiveTree& tree : find_trees(node, request, {})) {
      int crossings = 0;
      for (const auto& [link, times] : tree.loads) {
        EXPECT_GT(times, 0);
        crossings += times;
      }
      // A link for each rank but the owner; those by host memory one more, but the gather's only
      // once.
      EXPECT_GE(crossings, request.ranks() - 1);
      EXPECT_LE(crossings, 2 * (request.ranks() - 1));
    }
  }
}

TEST(Trees, PackingExceedsNoLinkAndNoPort) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Node node = random_node(random);
    const auto op = static_cast<CollectiveOp>(pick(random, 0, 4));
    auto request = request_of(op, pick(random, 2, static_cast<int>(node.gpus.size())));
    request.root = request.ranks() - 1;
    const auto trees = find_trees(node, request, {});
    const TreePacking packing = pack_trees(node, request, trees, {});
    EXPECT_GT(packing.gbps, 0);
    std::vector<double> links(node.links.size());
    std::vector<double> ports(node.ports.size());
    double in = 0;
    double out = 0;
    for (std::size_t t = 0; t < trees.size(); ++t) {
      (trees[t].kind == TreeKind::in ? in : out) += packing.tree_gbps[t];
      for (const auto& [link, times] : trees[t].loads) {
        links[static_cast<std::size_t>(link)] += times * packing.tree_gbps[t];
        for (const int port : node.links[static_cast<std::size_t>(link)].ports)
          ports[static_cast<std::size_t>(port)] += times * packing.tree_gbps[t];
      }
    }
    for (std::size_t i = 0; i < links.size(); ++i)
      EXPECT_LE(links[i], node.links[i].gbps * (1 + 1e-6));
    for (std::size_t i = 0; i < ports.size(); ++i)
      EXPECT_LE(ports[i], node.ports[i].gbps * (1 + 1e-6));
    const bool has_in = op == CollectiveOp::allreduce || op == CollectiveOp::reduce_scatter ||
                        op == CollectiveOp::reduce;
    const bool has_out = op == CollectiveOp::allreduce || op == CollectiveOp::all_gather ||
                         op == CollectiveOp::broadcast;
    if (has_in) {
      EXPECT_GE(in, packing.gbps * (1 - 1e-6));
    }
    if (has_out) {
      EXPECT_GE(out, packing.gbps * (1 - 1e-6));
    }
    // More trees never carry less.
    TreeFilter stars{.stars_only = true, .host = false};
    TreeFilter no_host{.host = false};
    const double by_stars = collective_limit_gbps(node, request, stars);
    const double by_links = collective_limit_gbps(node, request, no_host);
    EXPECT_LE(by_stars, by_links * (1 + 1e-6));
    EXPECT_LE(by_links, packing.gbps * (1 + 1e-6));
  }
}

}  // namespace
}  // namespace polypath
