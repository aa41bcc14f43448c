// What the planner sees of an NVSwitch node while a mesh is emulated on it.
#include "exec/emulated_mesh/mesh_node.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Node known_node(const char* name) { return read_node_file(find_node_file(name)); }

const Link& link_of(const Node& node, MemoryId from, MemoryId to) {
  return node.links.at(static_cast<std::size_t>(node.find_link(from, to).value()));
}

std::vector<std::string> ports_of(const Node& node, const Link& link) {
  std::vector<std::string> names;
  for (const int port : link.ports)
    names.push_back(node.ports.at(static_cast<std::size_t>(port)).name);
  return names;
}

std::string refusal(const Node& node, double gbps) {
  try {
    static_cast<void>(emulated_mesh(node, gbps));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "was made";
}

TEST(EmulatedMesh, EachPairOfASwitchNodeGetsALinkOfItsOwn) {
  const Node node = known_node("hgx-h200-x4");
  const Node mesh = emulated_mesh(node, 46);
  EXPECT_NO_THROW(validate(mesh));
  ASSERT_EQ(mesh.links.size(), node.links.size());
  for (int from = 0; from < 4; ++from)
    for (int to = 0; to < 4; ++to) {
      if (from == to) continue;
      const Link& link = link_of(mesh, MemoryId::gpu(from), MemoryId::gpu(to));
      EXPECT_EQ(link.type, LinkType::nvlink);
      EXPECT_EQ(link.gbps, 46);
      EXPECT_TRUE(link.ports.empty()) << "nothing is shared in a mesh";
      EXPECT_EQ(link.nominal_gbps, 0) << "no data sheet says so";
      EXPECT_EQ(link.width, 0);
    }
}

TEST(EmulatedMesh, HostLinksKeepTheirCapacitiesAndPorts) {
  const Node node = known_node("hgx-h200-x4");
  const Node mesh = emulated_mesh(node, 91);
  for (const Link& link : node.links) {
    if (link.from.is_gpu() && link.to.is_gpu()) continue;
    const Link& kept = link_of(mesh, link.from, link.to);
    EXPECT_EQ(kept.gbps, link.gbps);
    EXPECT_EQ(kept.type, link.type);
    EXPECT_EQ(kept.width, link.width);
    EXPECT_EQ(ports_of(mesh, kept), ports_of(node, link));
  }
  for (const Port& port : mesh.ports) {
    EXPECT_THAT(port.name, testing::Not(HasSubstr("nvlink"))) << "nobody uses it";
    EXPECT_NE(std::ranges::find(node.ports, port), node.ports.end());
  }
  EXPECT_EQ(mesh.costs, node.costs);
  EXPECT_EQ(mesh.gpus, node.gpus);
  EXPECT_EQ(mesh.hosts, node.hosts);
}

TEST(EmulatedMesh, SaysWhatItIs) {
  Node node = known_node("hgx-h200-x4");
  EXPECT_EQ(emulated_mesh(node, 46).name, "hgx-h200-x4 (emulated mesh, 46 GB/s a link)");
  EXPECT_THAT(emulated_mesh(node, 46.5).title, HasSubstr("(emulated mesh, 46.5 GB/s a link)"));
  node.title.clear();
  EXPECT_EQ(emulated_mesh(node, 46).title, "");
}

TEST(EmulatedMesh, MeshNode_EmulatesSlowerMesh) {
  const Node mesh = emulated_mesh(known_node("narval"), 46);
  EXPECT_EQ(link_of(mesh, MemoryId::gpu(3), MemoryId::gpu(1)).gbps, 46);
  EXPECT_EQ(link_of(mesh, MemoryId::gpu(3), MemoryId::host(0)).gbps, 25);
}

TEST(EmulatedMesh, PortSharedWithHostLinks_Stays) {
  Node node = known_node("narval");
  const auto& host = link_of(node, MemoryId::gpu(0), MemoryId::host(0));
  const auto port = host.ports.front();
  const std::string name = node.ports[static_cast<std::size_t>(port)].name;
  node.links[static_cast<std::size_t>(*node.find_link(MemoryId::gpu(0), MemoryId::gpu(1)))]
      .ports = {port};
  const Node mesh = emulated_mesh(node, 20);
  EXPECT_EQ(ports_of(mesh, link_of(mesh, MemoryId::gpu(0), MemoryId::gpu(1))),
            std::vector<std::string>{name});
}

TEST(EmulatedMesh, RefusesWhatTheNodeCannotCarry) {
  EXPECT_THAT(refusal(known_node("pcie-4gpu"), 46), HasSubstr("no NVLink between two GPUs"));
  EXPECT_THAT(refusal(known_node("narval"), 120),
              AllOf(HasSubstr("120 GB/s"), HasSubstr("gpu0 to gpu1 carries 93 GB/s")));
  EXPECT_THAT(refusal(known_node("hgx-h200-x4"), 200),
              AllOf(HasSubstr("3 links of 200 GB/s share nvlink-out.gpu0"), HasSubstr("396 GB/s")));
  EXPECT_EQ(refusal(known_node("hgx-h200-x4"), 120), "was made");
}

}  // namespace
}  // namespace polypath
