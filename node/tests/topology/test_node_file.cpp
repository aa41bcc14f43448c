#include "topology/node_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/units.hpp"
#include "support/temporary_folder.hpp"

namespace polypath {
namespace {

using test::TemporaryFolder;

constexpr const char* kGood = R"(schema = 1
name = "small"
title = "a title"
source = "a source"
[costs]
copy_start_us = 7.5
[[host]]
numa = 0
memory_gib = 64
[[host]]
numa = 8
memory_gib = 32
[[gpu]]
count = 3
name = "V100"
memory_gib = 16
pcie_generation = 3
pcie_width = 16
numa = [0, 0, 8]
[[link]]
from = "gpu*"
to = "gpu*"
type = "nvlink"
gbps = 46
nominal_gbps = 50
width = 2
[[link]]
from = "gpu*"
to = "host*"
both_directions = true
distance = "near"
type = "pcie"
gbps = 12
[[link]]
from = "gpu*"
to = "host*"
both_directions = true
distance = "far"
type = "pcie"
gbps = 9
[[port]]
name = "pcie"
from = "gpu*"
to = "host*"
both_directions = true
per = "from"
gbps = 22
[[port]]
name = "in"
from = ["gpu0", "gpu1"]
to = "gpu*"
per = "to"
gbps = 80
[[port]]
name = "host"
from = "gpu*"
to = "host0"
gbps = 30
[[traffic]]
from = "gpu0"
to = "host0"
block_mib = 8
queue_blocks = 3
on_us = 2000
off_us = 500
begin_us = 10
end_us = 1e6
)";

std::vector<std::string> ports_of(const Node& node, const char* from, const char* to) {
  const auto link = node.find_link(parse_memory(from), parse_memory(to));
  std::vector<std::string> names;
  if (!link) return {"no such link"};
  for (const int port : node.links[static_cast<std::size_t>(*link)].ports)
    names.push_back(node.ports[static_cast<std::size_t>(port)].name);
  return names;
}

double gbps_of(const Node& node, const char* from, const char* to) {
  const auto link = node.find_link(parse_memory(from), parse_memory(to));
  return link ? node.links[static_cast<std::size_t>(*link)].gbps : 0;
}

using Names = std::vector<std::string>;

TEST(NodeFile, ReadsEveryField) {
  const TemporaryFolder folder;
  const Node node = read_node_file(folder.write("small.toml", kGood));
  EXPECT_EQ(node.name, "small");
  EXPECT_EQ(node.title, "a title");
  EXPECT_EQ(node.source, "a source");
  EXPECT_EQ(node.costs.copy_start_us, 7.5);
  EXPECT_EQ(node.costs.copy_issue_us, Costs{}.copy_issue_us);
  ASSERT_EQ(node.hosts.size(), 2u);
  EXPECT_EQ(node.hosts[1].numa, 8);
  EXPECT_EQ(node.hosts[1].memory_bytes, 32 * kGiB);
  ASSERT_EQ(node.gpus.size(), 3u);
  EXPECT_EQ(node.gpus[1].name, "V100");
  EXPECT_EQ(node.gpus[1].memory_bytes, 16 * kGiB);
  EXPECT_EQ(node.gpus[1].pcie_generation, 3);
  EXPECT_EQ(node.gpus[1].pcie_width, 16);
  EXPECT_EQ(node.gpus[1].numa, 0);
  EXPECT_EQ(node.gpus[2].numa, 1);
  const auto link = node.find_link(MemoryId::gpu(2), MemoryId::gpu(1));
  ASSERT_TRUE(link);
  const Link& nvlink = node.links[static_cast<std::size_t>(*link)];
  EXPECT_EQ(nvlink.type, LinkType::nvlink);
  EXPECT_EQ(nvlink.gbps, 46);
  EXPECT_EQ(nvlink.nominal_gbps, 50);
  EXPECT_EQ(nvlink.width, 2);
  const BackgroundTraffic traffic{
      MemoryId::gpu(0), MemoryId::host(0), 8 * kMiB, 3, 2000, 500, 10, 1e6};
  EXPECT_EQ(node.traffic, std::vector{traffic});
}

TEST(NodeFile, PatternsMakeEveryOrderedPair) {
  const TemporaryFolder folder;
  const Node node = read_node_file(folder.write("small.toml", kGood));
  EXPECT_EQ(node.links.size(), 3u * 2 + 3 * 2 * 2);
  EXPECT_EQ(gbps_of(node, "gpu0", "gpu2"), 46);
  EXPECT_EQ(gbps_of(node, "gpu2", "gpu0"), 46);
}

TEST(NodeFile, DistanceTellsNumaDomainsApart) {
  const TemporaryFolder folder;
  const Node node = read_node_file(folder.write("small.toml", kGood));
  EXPECT_EQ(gbps_of(node, "gpu0", "host0"), 12);
  EXPECT_EQ(gbps_of(node, "gpu0", "host1"), 9);
  EXPECT_EQ(gbps_of(node, "host1", "gpu2"), 12);
  EXPECT_EQ(gbps_of(node, "host0", "gpu2"), 9);
}

TEST(NodeFile, PortsCountBySideOfThePattern) {
  const TemporaryFolder folder;
  const Node node = read_node_file(folder.write("small.toml", kGood));
  EXPECT_EQ(ports_of(node, "gpu0", "host0"), (Names{"pcie.gpu0", "host"}));
  EXPECT_EQ(ports_of(node, "gpu0", "host1"), (Names{"pcie.gpu0"}));
  EXPECT_EQ(ports_of(node, "host0", "gpu2"), (Names{"pcie.gpu2"}));
  EXPECT_EQ(ports_of(node, "gpu1", "gpu0"), (Names{"in.gpu0"}));
  EXPECT_EQ(ports_of(node, "gpu0", "gpu2"), (Names{"in.gpu2"}));
  EXPECT_EQ(ports_of(node, "gpu2", "gpu0"), (Names{}));
}

TEST(NodeFile, LinksMayNamePortsWithoutPatterns) {
  std::string text = kGood;
  text.replace(text.find("width = 2\n"), 10, "width = 2\nports = [\"fabric\"]\n");
  text += "[[port]]\nname = \"fabric\"\ngbps = 100\n";
  const TemporaryFolder folder;
  const Node node = read_node_file(folder.write("small.toml", text));
  EXPECT_EQ(ports_of(node, "gpu2", "gpu0"), (Names{"fabric"}));
  EXPECT_EQ(ports_of(node, "gpu1", "gpu0"), (Names{"fabric", "in.gpu0"}));
}

/// A piece of kGood replaced by another; the error must name `line` and say `what`.
struct BadInput {
  const char* name;
  const char* before;
  const char* after;
  int line;
  const char* what;
};

class BadNodeFile : public testing::TestWithParam<BadInput> {};

TEST_P(BadNodeFile, NamesFileLineAndRange) {
  std::string text = kGood;
  const std::string before = std::string(GetParam().before) + "\n";
  const std::size_t at = text.find(before);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, before.size(), std::string(GetParam().after) + "\n");
  const TemporaryFolder folder;
  const std::string file = folder.write("bad.toml", text).string();
  try {
    read_node_file(file);
    FAIL() << "the file passed";
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.rfind(file + ":" + std::to_string(GetParam().line) + ": ", 0), 0u) << message;
    EXPECT_NE(message.find(GetParam().what), std::string::npos) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Inputs, BadNodeFile,
    testing::Values(
        BadInput{"Syntax", "gbps = 46", "gbps = = 46", 24, ""},
        BadInput{"Schema", "schema = 1", "schema = 2", 1, "a whole number from 1 to 1"},
        BadInput{"MissingName", "name = \"small\"", "", 1, "'name' is missing"},
        BadInput{"EmptyName", "name = \"small\"", "name = \"\"", 2, "not empty"},
        BadInput{"UnknownRootKey", "title = \"a title\"", "titel = \"x\"", 3,
                 "titel: is not a known key; known: schema, name, title"},
        BadInput{"UnknownCost", "copy_start_us = 7.5", "copy_begin_us = 1", 6, "copy_start_us"},
        BadInput{"NegativeCost", "copy_start_us = 7.5", "copy_start_us = -1", 6,
                 "a number from 0 to 10000"},
        BadInput{"TextForCost", "copy_start_us = 7.5", "copy_start_us = \"7\"", 6, "a number"},
        BadInput{"NotANumber", "copy_start_us = 7.5", "copy_start_us = nan", 6, "0 to 10000"},
        BadInput{"CostsNoTable", "[costs]", "[[costs]]", 5, "must be a table: [costs]"},
        BadInput{"HostTwice", "numa = 8", "numa = 0", 11, "another [[host]]"},
        BadInput{"HugeMemory", "memory_gib = 64", "memory_gib = 1e9", 9, "0 to 1048576"},
        BadInput{"NoGpus", "count = 3", "count = 0", 14, "1 to 64"},
        BadInput{"FractionOfGpu", "count = 3", "count = 2.5", 14, "a whole number from 1 to 64"},
        BadInput{"NumaListShort", "numa = [0, 0, 8]", "numa = [0, 8]", 19, "a list of 3"},
        BadInput{"NumaUnknown", "numa = [0, 0, 8]", "numa = [0, 0, 1]", 19,
                 "no [[host]] with numa = 1"},
        BadInput{"PcieGeneration", "pcie_generation = 3", "pcie_generation = 8", 17, "0 to 7"},
        BadInput{"PcieWidth", "pcie_width = 16", "pcie_width = 64", 18, "0 to 32"},
        BadInput{"NoSuchGpu", "from = \"gpu*\"", "from = \"gpu3\"", 21, "gpu0 to gpu2"},
        BadInput{"NoSuchPattern", "from = \"gpu*\"", "from = [\"gpu0\", \"cpu*\"]", 21,
                 "gpu*, host*"},
        BadInput{"PatternType", "from = \"gpu*\"", "from = 0", 21, "a list of strings"},
        BadInput{"LinkType", "type = \"nvlink\"", "type = \"nvlnk\"", 23, "nvswitch, pcie, c2c"},
        BadInput{"NoCapacity", "gbps = 46", "", 20, "'gbps' is missing (a number from 0.001 to"},
        BadInput{"ZeroCapacity", "gbps = 46", "gbps = 0", 24, "0.001 to 100000"},
        BadInput{"Infinite", "gbps = 46", "gbps = inf", 24, "0.001 to 100000"},
        BadInput{"Nominal", "nominal_gbps = 50", "nominal_gbps = -1", 25, "0 to 100000"},
        BadInput{"Width", "width = 2", "width = 1025", 26, "0 to 1024"},
        BadInput{"PortNotDeclared", "width = 2", "ports = \"in\"", 26, "no [[port]] 'in'"},
        BadInput{"LinkKey", "width = 2", "with = 2", 26, "known: from, to, both_directions"},
        BadInput{"BothDirections", "both_directions = true", "both_directions = 1", 30,
                 "true or false"},
        BadInput{"Distance", "distance = \"near\"", "distance = \"close\"", 31, "near, far or any"},
        BadInput{"LinkTwice", "distance = \"far\"", "distance = \"any\"", 34, "exists already"},
        BadInput{"NoPair", "from = \"gpu*\"\nto = \"gpu*\"", "from = \"gpu1\"\nto = \"gpu1\"", 20,
                 "match no pair"},
        BadInput{"Per", "per = \"from\"", "per = \"gpu\"", 46, "from, to or all"},
        BadInput{"PortCapacity", "gbps = 22", "gbps = 1e6", 47, "0.001 to 100000"},
        BadInput{"PortTwice", "name = \"host\"", "name = \"in.gpu0\"", 55, "'in.gpu0' already"},
        BadInput{"PortOfNoLink", "from = \"gpu*\"\nto = \"host0\"",
                 "from = \"host0\"\nto = \"host1\"", 54, "no link matches"},
        BadInput{"PortKey", "gbps = 30", "gbps = 30\ngbp = 3", 59, "gbp: is not a known key"},
        BadInput{"TrafficEnd", "from = \"gpu0\"", "from = \"gpu3\"", 60, "such as gpu0 or host0"},
        BadInput{"TrafficBlock", "block_mib = 8", "block_mib = 0", 62, "0.0009765625 to 1048576"},
        BadInput{"TrafficQueue", "queue_blocks = 3", "queue_blocks = 0", 63, "1 to 1024"},
        BadInput{"TrafficPeriod", "off_us = 500", "", 1, "on_us and off_us must be positive"},
        BadInput{"TrafficOrder", "end_us = 1e6", "end_us = 5", 1, "must end after it begins"},
        BadInput{"TrafficKey", "end_us = 1e6", "until_us = 5", 67, "until_us: is not a known key"}),
    [](const auto& test) { return test.param.name; });

TEST(NodeFile, MissingFile_IsRefused) {
  EXPECT_THROW(read_node_file("/does/not/exist.toml"), InvalidArgument);
}

TEST(NodeSearch, FindsByNameAndByPath) {
  const TemporaryFolder folder;
  const auto file = folder.write("mine.toml", kGood);
  EXPECT_EQ(find_node_file(file.string()), file);
  EXPECT_EQ(find_node_file("narval").filename(), "narval.toml");
}

TEST(NodeSearch, UnknownName_ListsKnownNodes) {
  try {
    find_node_file("nowhere");
    FAIL();
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("nowhere"), std::string::npos);
    EXPECT_NE(message.find("beluga, "), std::string::npos) << message;
  }
  EXPECT_THROW(find_node_file("/does/not/exist.toml"), InvalidArgument);
}

TEST(NodeSearch, KnownFilesAreSorted) {
  const auto files = known_node_files();
  EXPECT_TRUE(std::is_sorted(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return a.stem().string() < b.stem().string();
  }));
}

}  // namespace
}  // namespace polypath
