#include "topology/default_graph.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "link_of.hpp"
#include "topology/peer_links.hpp"

namespace polypath {
namespace {

/// `count` GPUs on PCIe 5 in domain 0, with peer access to each other and no NVLink.
std::vector<ObservedGpu> pcie_gpus(int count) {
  std::vector<ObservedGpu> gpus(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    ObservedGpu& seen = gpus[static_cast<std::size_t>(i)];
    seen.gpu.name = "GPU";
    seen.gpu.pci = fmt::format("0000:{:02x}:00.0", i + 1);
    seen.gpu.pcie_generation = 5;
    seen.gpu.pcie_width = 16;
    seen.compute_capability = 90;
    seen.peer_access.assign(gpus.size(), true);
  }
  return gpus;
}

std::vector<ObservedGpu> switched_gpus(int count) {
  std::vector<ObservedGpu> gpus = pcie_gpus(count);
  for (ObservedGpu& seen : gpus) seen.nvlinks.to_switch = 18;
  return gpus;
}

std::vector<std::string> ports_of(const Node& node, MemoryId from, MemoryId to) {
  std::vector<std::string> names;
  for (const int port : link_of(node, from, to).ports)
    names.push_back(node.ports.at(static_cast<std::size_t>(port)).name);
  return names;
}

using Names = std::vector<std::string>;
constexpr MemoryId kGpu0 = MemoryId::gpu(0);
constexpr MemoryId kGpu1 = MemoryId::gpu(1);
constexpr MemoryId kHost0 = MemoryId::host(0);
constexpr MemoryId kHost1 = MemoryId::host(1);

TEST(DefaultGraph, SwitchIsOnePortOutAndOneIn) {
  const Node node = make_default_graph(switched_gpus(4), {{0, 1}});
  EXPECT_NO_THROW(validate(node));
  const Link& link = link_of(node, kGpu0, kGpu1);
  EXPECT_EQ(link.type, LinkType::nvswitch);
  EXPECT_EQ(link.width, 18);
  EXPECT_EQ(link.nominal_gbps, 450);
  EXPECT_EQ(ports_of(node, kGpu0, kGpu1), (Names{"nvlink-out.gpu0", "nvlink-in.gpu1"}));
  EXPECT_EQ(ports_of(node, kGpu1, kGpu0), (Names{"nvlink-out.gpu1", "nvlink-in.gpu0"}));
}

TEST(DefaultGraph, MeshHasOneLinkPerPair) {
  std::vector<ObservedGpu> gpus = pcie_gpus(2);
  gpus[0].nvlinks.to_gpu = {{gpus[1].gpu.pci, 6}};
  gpus[1].nvlinks.to_gpu = {{gpus[0].gpu.pci, 6}};
  const Node node = make_default_graph(gpus, {{0, 1}});
  const Link& link = link_of(node, kGpu0, kGpu1);
  EXPECT_EQ(link.type, LinkType::nvlink);
  EXPECT_EQ(link.width, 6);
  EXPECT_EQ(link.nominal_gbps, 150);
  EXPECT_TRUE(link.ports.empty());
}

TEST(DefaultGraph, PeersWithoutNvlinkShareTheirHostLinks) {
  std::vector<ObservedGpu> gpus = pcie_gpus(2);
  gpus[1].gpu.pcie_width = 8;
  const Node node = make_default_graph(gpus, {{0, 1}});
  const Link& link = link_of(node, kGpu0, kGpu1);
  EXPECT_EQ(link.type, LinkType::pcie);
  EXPECT_EQ(link.width, 8);
  EXPECT_EQ(link.gbps, link_of(node, kGpu1, kHost0).gbps);
  EXPECT_EQ(ports_of(node, kGpu0, kGpu1), (Names{"pcie.gpu0", "pcie.gpu1"}));
}

TEST(DefaultGraph, WithoutPeerAccessTheDriverBounces) {
  std::vector<ObservedGpu> gpus = switched_gpus(2);
  gpus[0].peer_access[1] = false;
  const Node node = make_default_graph(gpus, {{0, 1}});
  EXPECT_EQ(link_of(node, kGpu0, kGpu1).type, LinkType::bounce);
  EXPECT_EQ(ports_of(node, kGpu0, kGpu1), (Names{"pcie.gpu0", "pcie.gpu1"}));
  EXPECT_EQ(link_of(node, kGpu1, kGpu0).type, LinkType::nvswitch);
}

TEST(DefaultGraph, LeftOutPeerLinks_TakeBothHostLinks) {
  const Node whole = make_default_graph(switched_gpus(2), {{0, 1}});
  const Node node = without_peer_links(whole);
  const Link& link = link_of(node, kGpu0, kGpu1);
  EXPECT_EQ(link.type, LinkType::bounce);
  EXPECT_EQ(link.gbps, link_of(whole, kGpu0, kHost0).gbps);
  EXPECT_EQ(ports_of(node, kGpu0, kGpu1), (Names{"pcie.gpu0", "host.host0", "pcie.gpu1"}));
  EXPECT_EQ(link_of(node, kGpu0, kHost0), link_of(whole, kGpu0, kHost0));
  EXPECT_EQ(without_peer_links(node), node);
}

TEST(DefaultGraph, HostLinksShareTheGpusAndTheDomainsPort) {
  const Node node = make_default_graph(switched_gpus(2), {{0, 1}});
  EXPECT_EQ(ports_of(node, kGpu0, kHost0), (Names{"pcie.gpu0", "host.host0"}));
  EXPECT_EQ(ports_of(node, kHost0, kGpu0), (Names{"pcie.gpu0", "host.host0"}));
  EXPECT_EQ(link_of(node, kHost0, kGpu0).width, 16);
}

TEST(DefaultGraph, LinksToOtherDomain_AreSlowerAndShared) {
  std::vector<ObservedGpu> gpus = switched_gpus(2);
  gpus[1].gpu.numa = 8;
  const Node node = make_default_graph(gpus, {{0, 1}});
  ASSERT_EQ(node.hosts, (std::vector<HostMemory>{{0, 1}, {8, 0}}));
  EXPECT_EQ(node.gpus[1].numa, 1);
  EXPECT_LT(link_of(node, kGpu0, kHost1).gbps, link_of(node, kGpu0, kHost0).gbps);
  EXPECT_EQ(ports_of(node, kGpu0, kHost1), (Names{"pcie.gpu0", "host.host1", "sockets"}));
  EXPECT_EQ(ports_of(node, kHost1, kGpu1), (Names{"pcie.gpu1", "host.host1"}));
}

TEST(DefaultGraph, NvlinkToTheCpuIsTheHostLink) {
  std::vector<ObservedGpu> gpus = pcie_gpus(2);
  for (ObservedGpu& seen : gpus) {
    seen.nvlinks.to_cpu = 3;
    seen.compute_capability = 70;
    seen.coherent_with_cpu = true;
  }
  gpus[1].gpu.numa = 8;
  const Node node = make_default_graph(gpus, {});
  EXPECT_EQ(link_of(node, kGpu0, kHost0).type, LinkType::nvlink);
  EXPECT_EQ(link_of(node, kGpu0, kHost0).width, 3);
  EXPECT_EQ(link_of(node, kGpu0, kHost0).nominal_gbps, 75);
  EXPECT_EQ(link_of(node, kGpu0, kHost1).width, 0);
  EXPECT_EQ(link_of(node, kGpu0, kGpu1).type, LinkType::nvlink);
  EXPECT_EQ(link_of(node, kGpu0, kGpu1).width, 0);
  EXPECT_EQ(ports_of(node, kGpu0, kGpu1), (Names{"nvlink.gpu0", "nvlink.gpu1", "sockets"}));
}

TEST(DefaultGraph, CoherentGpu_HasC2c) {
  std::vector<ObservedGpu> gpus = pcie_gpus(1);
  gpus[0].coherent_with_cpu = true;
  const Node node = make_default_graph(gpus, {});
  EXPECT_EQ(link_of(node, kGpu0, kHost0).type, LinkType::c2c);
  EXPECT_EQ(link_of(node, kGpu0, kHost0).nominal_gbps, 450);
}

TEST(DefaultGraph, SingleGpu_IsValidNode) {
  const Node node = make_default_graph(pcie_gpus(1), {{0, 1}});
  EXPECT_NO_THROW(validate(node));
  EXPECT_EQ(node.links.size(), 2u);
}

}  // namespace
}  // namespace polypath
