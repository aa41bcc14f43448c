#include <gtest/gtest.h>

#include "base/units.hpp"
#include "support/temporary_folder.hpp"
#include "topology/node_file.hpp"
#include "topology/node_json.hpp"

namespace polypath {
namespace {

/// Every field set, with values that text could lose.
Node awkward_node() {
  Node node;
  node.name = "4 x \"GPU\"";
  node.title = "back\\slash, tab\t, line\nand \x01, Béluga";
  node.source = "measured";
  node.costs.copy_start_us = 1.0 / 3;
  node.costs.context_create_us = 0;
  node.hosts = {{0, 0}, {8, 12345678901}};
  node.gpus = {{"GPU", "GPU-0123", "0000:41:00.0", 1, 150323855361, 5, 16},
               {"GPU", "", "", 0, 3 * kGiB, 0, 0}};
  node.ports = {{"pcie.gpu0", 0.1 + 0.2}, {"a \"port\"", 1e5}};
  for (int gpu = 0; gpu < 2; ++gpu) {
    for (int host = 0; host < 2; ++host) {
      node.links.push_back(
          {MemoryId::gpu(gpu), MemoryId::host(host), LinkType::pcie, 55.4, 64, 16, {1, 0}});
      node.links.push_back(
          {MemoryId::host(host), MemoryId::gpu(gpu), LinkType::c2c, 1.0 / 7, 0, 0, {}});
    }
  }
  node.traffic = {{MemoryId::gpu(0), MemoryId::host(0), 64 * kMiB, 1, 0, 0, 0, 0},
                  {MemoryId::host(1), MemoryId::gpu(1), 3 * kMiB, 7, 0.1 + 0.2, 2e4, 5, 1e6}};
  return node;
}

TEST(NodeFormat, ReadsBackEqual) {
  const test::TemporaryFolder folder;
  const Node node = awkward_node();
  EXPECT_TRUE(read_node_file(folder.write("node.toml", format_node_file(node))) == node)
      << format_node_file(node);
}

TEST(NodeJson, ContainsTheDocumentedFields) {
  const nlohmann::json json = to_json(awkward_node());
  EXPECT_EQ(json["name"], "4 x \"GPU\"");
  EXPECT_EQ(json["source"], "measured");
  const nlohmann::json gpu = {
      {"id", "gpu0"},         {"name", "GPU"},   {"pci", "0000:41:00.0"},
      {"uuid", "GPU-0123"},   {"numa", 8},       {"memory_bytes", 150323855361},
      {"pcie_generation", 5}, {"pcie_width", 16}};
  EXPECT_EQ(json["gpus"][0], gpu);
  const nlohmann::json host = {{"id", "host1"}, {"numa", 8}, {"memory_bytes", 12345678901}};
  EXPECT_EQ(json["hosts"][1], host);
  const nlohmann::json link = {{"from", "gpu0"},
                               {"to", "host0"},
                               {"type", "pcie"},
                               {"width", 16},
                               {"gbps", 55.4},
                               {"nominal_gbps", 64.0},
                               {"ports", {"a \"port\"", "pcie.gpu0"}}};
  EXPECT_EQ(json["links"][0], link);
  EXPECT_EQ(json["links"].size(), 8u);
  const nlohmann::json port = {{"name", "pcie.gpu0"}, {"gbps", 0.1 + 0.2}};
  EXPECT_EQ(json["ports"][0], port);
  EXPECT_EQ(json["costs"]["copy_start_us"], 1.0 / 3);
  EXPECT_EQ(json["costs"]["copy_issue_us"], Costs{}.copy_issue_us);
}

}  // namespace
}  // namespace polypath
