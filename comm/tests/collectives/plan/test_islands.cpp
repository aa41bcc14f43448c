// Islands of the known nodes, and of nodes made up.
#include <gtest/gtest.h>

#include "collectives/plan/islands.hpp"
#include "known_node.hpp"
#include "plan_inputs.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

using Islands = std::vector<std::vector<int>>;

TEST(Islands, KnownNodes_HaveTheseIslands) {
  struct Row {
    const char* node;
    std::vector<int> gpus;
    Islands by_links;
    Islands by_socket;
  };
  const Islands whole = {{0, 1, 2, 3}};
  const Islands halves = {{0, 1}, {2, 3}};
  const std::vector<Row> rows = {
      {"mist", {0, 1, 2, 3}, halves, halves},
      {"mist", {0, 2, 1, 3}, {{0, 2}, {1, 3}}, {{0, 2}, {1, 3}}},
      {"mist", {0, 1, 2}, {{0, 1}, {2}}, {{0, 1}, {2}}},
      {"mist", {0, 2}, {{0, 1}}, {{0, 1}}},  // single ranks are no islands
      {"cedar", {0, 1, 2, 3}, whole, halves},
      {"narval", {0, 1, 2, 3}, whole, whole},
      {"hgx-h200-x4", {0, 1, 2, 3}, whole, whole},
      {"pcie-4gpu", {0, 1, 2, 3}, whole, whole},
      {"dgx-h200-x8",
       {0, 1, 2, 3, 4, 5, 6, 7},
       {{0, 1, 2, 3, 4, 5, 6, 7}},
       {{0, 1, 2, 3}, {4, 5, 6, 7}}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.node);
    EXPECT_EQ(find_islands(known(row.node), row.gpus, false), row.by_links);
    EXPECT_EQ(find_islands(known(row.node), row.gpus, true), row.by_socket);
  }
}

TEST(Islands, SayWhetherTheyKeepTheOrderOfRanks) {
  EXPECT_TRUE(in_rank_order({{0, 1}, {2, 3}}));
  EXPECT_TRUE(in_rank_order({{0, 1, 2}}));
  EXPECT_FALSE(in_rank_order({{0, 2}, {1, 3}}));
}

TEST(Islands, HalvesOfATree) {
  EXPECT_TRUE(are_halves_of_tree({{0, 1}, {2, 3}}));
  EXPECT_TRUE(are_halves_of_tree({{0, 1}, {2}}));
  EXPECT_TRUE(are_halves_of_tree({{0, 1, 2, 3}, {4, 5, 6}}));
  EXPECT_FALSE(are_halves_of_tree({{0}, {1, 2}}));
  EXPECT_FALSE(are_halves_of_tree({{0, 1, 2}, {3, 4, 5}}));
  EXPECT_FALSE(are_halves_of_tree({{0, 2}, {1, 3}}));
  EXPECT_FALSE(are_halves_of_tree({{2, 3}, {0, 1}}));
  EXPECT_FALSE(are_halves_of_tree({{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
}

TEST(Islands, CoverAllRanksOnce) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const Node node = random_node(random);
    std::vector<int> gpus;
    for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu) gpus.push_back(static_cast<int>(gpu));
    std::vector<int> seen(gpus.size());
    const auto islands = find_islands(node, gpus, true);
    for (const auto& island : islands)
      for (const int rank : island) ++seen.at(static_cast<std::size_t>(rank));
    for (const int times : seen) EXPECT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace polypath
