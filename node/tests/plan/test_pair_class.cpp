// The classes of the pairs of known nodes, as a table.
#include "plan/pair_class.hpp"

#include <gtest/gtest.h>

#include <set>

#include "plan_inputs.hpp"

namespace polypath {
namespace {

/// "gpu0 > gpu1: class", one line each.
std::vector<std::string> table_of(const Node& node) {
  std::vector<std::string> lines;
  for (const Request& request : one_of_each_class(node))
    lines.push_back(to_string(request.src) + " > " + to_string(request.dst) + ": " +
                    pair_class(node, request.src, request.dst));
  return lines;
}

struct ClassesOfNode {
  const char* node;
  std::vector<std::string> lines;
};

TEST(PairClass, KnownNodes_HaveTheseClasses) {
  const std::vector<ClassesOfNode> rows = {
      {"narval",
       {
           "gpu0 > gpu1: gpu to gpu, nvlink x4, via 2 gpu, 1 host",
           "gpu0 > host0: gpu to host, pcie x16, via 3 gpu, 0 host",
           "host0 > gpu0: host to gpu, pcie x16, via 3 gpu, 0 host",
       }},
      {"mist",
       {
           "gpu0 > gpu1: gpu to gpu, nvlink x3, via 2 gpu, 2 host",
           "gpu0 > gpu2: gpu to gpu, nvlink, via 2 gpu, 2 host",
           "gpu0 > host0: gpu to host, nvlink x3, via 3 gpu, 0 host",
           "gpu0 > host1: gpu to far host, nvlink, via 3 gpu, 0 host",
           "host0 > gpu0: host to gpu, nvlink x3, via 3 gpu, 0 host",
           "host0 > gpu2: far host to gpu, nvlink, via 3 gpu, 0 host",
       }},
      {"hgx-h200-x4",
       {
           "gpu0 > gpu1: gpu to gpu, nvswitch x18, via 2 gpu, 1 host",
           "gpu0 > host0: gpu to host, pcie x16, via 3 gpu, 0 host",
           "host0 > gpu0: host to gpu, pcie x16, via 3 gpu, 0 host",
       }},
      {"dgx-h200-x8",
       {
           "gpu0 > gpu1: gpu to gpu, nvswitch x18, via 6 gpu, 2 host",
           "gpu0 > host0: gpu to host, pcie x16, via 7 gpu, 0 host",
           "gpu0 > host1: gpu to far host, pcie, via 7 gpu, 0 host",
           "host0 > gpu0: host to gpu, pcie x16, via 7 gpu, 0 host",
           "host0 > gpu4: far host to gpu, pcie, via 7 gpu, 0 host",
       }},
      {"gh200-quad",
       {
           "gpu0 > gpu1: gpu to gpu, nvlink x6, via 2 gpu, 4 host",
           "gpu0 > host0: gpu to host, c2c, via 3 gpu, 0 host",
           "gpu0 > host1: gpu to far host, c2c, via 3 gpu, 0 host",
           "host0 > gpu0: host to gpu, c2c, via 3 gpu, 0 host",
           "host0 > gpu1: far host to gpu, c2c, via 3 gpu, 0 host",
       }},
      {"pcie-4gpu",
       {
           "gpu0 > gpu1: gpu to gpu, bounce x16, via 0 gpu, 1 host",
           "gpu0 > host0: gpu to host, pcie x16, via 0 gpu, 0 host",
           "host0 > gpu0: host to gpu, pcie x16, via 0 gpu, 0 host",
       }},
  };
  for (const ClassesOfNode& row : rows)
    EXPECT_EQ(table_of(known_node(row.node)), row.lines) << row.node;
}

TEST(PairClass, EachPairOfANodeHasAClassOfItsTable) {
  for (const char* name : {"narval", "mist", "dgx-h200-x8", "gh200-quad", "pcie-4gpu"}) {
    const Node node = known_node(name);
    std::set<std::string> classes;
    for (const Request& request : one_of_each_class(node))
      EXPECT_TRUE(classes.insert(pair_class(node, request.src, request.dst)).second) << "twice";
    for (const MemoryId src : node.memories())
      for (const MemoryId dst : node.memories()) {
        if (src == dst || (src.is_host() && dst.is_host())) continue;
        EXPECT_TRUE(classes.contains(pair_class(node, src, dst)))
            << name << ": " << to_string(src) << " to " << to_string(dst);
      }
  }
}

TEST(PairClass, TellsWidthsApart) {
  Node node = known_node("narval");
  const auto link = static_cast<std::size_t>(*node.find_link(MemoryId::gpu(2), MemoryId::gpu(3)));
  node.links[link].width = 2;
  EXPECT_NE(pair_class(node, MemoryId::gpu(2), MemoryId::gpu(3)),
            pair_class(node, MemoryId::gpu(3), MemoryId::gpu(2)));
  node.links[link].width = 0;  // not known
  EXPECT_EQ(pair_class(node, MemoryId::gpu(2), MemoryId::gpu(3)),
            "gpu to gpu, nvlink, via 2 gpu, 1 host");
  EXPECT_EQ(table_of(node).size(), 4u);
}

}  // namespace
}  // namespace polypath
