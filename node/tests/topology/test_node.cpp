#include <gtest/gtest.h>

#include <functional>

#include "base/error.hpp"
#include "topology/node.hpp"

namespace polypath {
namespace {

Node small_node() {
  Node node;
  node.name = "small";
  node.gpus.resize(2);
  node.hosts.resize(1);
  node.ports = {{"pcie", 20}};
  for (int gpu = 0; gpu < 2; ++gpu) {
    node.links.push_back({MemoryId::gpu(gpu), MemoryId::host(0), LinkType::pcie, 12, 16, 16, {0}});
    node.links.push_back({MemoryId::host(0), MemoryId::gpu(gpu), LinkType::pcie, 12, 16, 16, {0}});
  }
  node.links.push_back({MemoryId::gpu(0), MemoryId::gpu(1), LinkType::nvlink, 46, 50, 2, {}});
  return node;
}

TEST(Node, MemoryNamesGoBothWays) {
  for (const MemoryId id : {MemoryId::gpu(0), MemoryId::gpu(15), MemoryId::host(3)})
    EXPECT_EQ(parse_memory(to_string(id)), id);
  EXPECT_EQ(to_string(MemoryId::gpu(15)), "gpu15");
  EXPECT_EQ(parse_memory("host"), MemoryId::host(0));
}

TEST(Node, RefusesOtherMemoryNames) {
  for (const char* name :
       {"", "gpu", "gpu*", "gpu-1", "gpu+1", "gpu1x", "GPU0", "cpu0", "gpu99999"})
    EXPECT_THROW(parse_memory(name), InvalidArgument) << '"' << name << '"';
}

TEST(Node, FindsLinksByDirection) {
  const Node node = small_node();
  EXPECT_EQ(node.find_link(MemoryId::gpu(0), MemoryId::gpu(1)), 4);
  EXPECT_EQ(node.find_link(MemoryId::gpu(1), MemoryId::gpu(0)), std::nullopt);
  EXPECT_TRUE(node.contains(MemoryId::host(0)));
  EXPECT_FALSE(node.contains(MemoryId::host(1)));
  EXPECT_FALSE(node.contains(MemoryId::gpu(-1)));
  EXPECT_EQ(node.memories(), (std::vector{MemoryId::gpu(0), MemoryId::gpu(1), MemoryId::host(0)}));
}

struct Breakage {
  const char* name;
  std::function<void(Node&)> apply;
  const char* message;
};

class BrokenNode : public testing::TestWithParam<Breakage> {};

TEST_P(BrokenNode, RefusalNamesTheReason) {
  Node node = small_node();
  ASSERT_NO_THROW(validate(node));
  GetParam().apply(node);
  try {
    validate(node);
    FAIL() << "the node passed";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rules, BrokenNode,
    testing::Values(
        Breakage{"NoGpu", [](Node& n) { n.gpus.clear(); }, "no GPU"},
        Breakage{"NoHost", [](Node& n) { n.hosts.clear(); }, "no host memory"},
        Breakage{"FarNuma", [](Node& n) { n.gpus[1].numa = 1; }, "gpu1 is nearest to host1"},
        Breakage{"NoWayOut", [](Node& n) { n.links.erase(n.links.begin()); },
                 "gpu0 has no link to its host memory host0"},
        Breakage{"NoWayIn", [](Node& n) { n.links.erase(n.links.begin() + 3); },
                 "gpu1 has no link from its host memory host0"},
        Breakage{"UnknownEnd", [](Node& n) { n.links[4].to = MemoryId::gpu(2); }, "no gpu2"},
        Breakage{"Loop", [](Node& n) { n.links[4].to = MemoryId::gpu(0); }, "the same memory"},
        Breakage{"HostToHost",
                 [](Node& n) {
                   n.hosts.resize(2);
                   n.links.push_back(
                       {MemoryId::host(0), MemoryId::host(1), LinkType::pcie, 9, 0, 0, {}});
                 },
                 "must be a GPU"},
        Breakage{"Doubled", [](Node& n) { n.links.push_back(n.links[4]); },
                 "gpu0 to gpu1 exists twice"},
        Breakage{"NoCapacity", [](Node& n) { n.links[4].gbps = 0; }, "0 GB/s is not positive"},
        Breakage{"NoPort", [](Node& n) { n.links[4].ports = {1}; }, "port index 1 is not below 1"},
        Breakage{"PortTwice", [](Node& n) { n.ports.push_back(n.ports[0]); },
                 "'pcie' exists twice"},
        Breakage{"PortCapacity", [](Node& n) { n.ports[0].gbps = -1; }, "-1 GB/s is not positive"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace polypath
