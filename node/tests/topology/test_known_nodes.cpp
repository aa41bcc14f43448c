// What the node files say, as a table: a new machine is a file and a row here, and one in
// docs/node-files.md.
#include <gtest/gtest.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "link_of.hpp"
#include "support/temporary_folder.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

namespace fs = std::filesystem;

/// Sends all it can over each route from gpu0 to gpu1 in turn: direct, by each GPU, by each host
/// memory. A flow that the links and ports allow; on these nodes no flow is larger, because no
/// route blocks one that would carry more.
class RouteFilling {
 public:
  explicit RouteFilling(const Node& node) : node_(node) {
    for (const Link& link : node.links) links_.push_back(link.gbps);
    for (const Port& port : node.ports) ports_.push_back(port.gbps);
  }

  double direct() { return fill({MemoryId::gpu(0), MemoryId::gpu(1)}); }

  double by(MemoryId::Kind kind) {
    double sum = 0;
    for (const MemoryId via : node_.memories())
      if (via.kind == kind && via != MemoryId::gpu(0) && via != MemoryId::gpu(1))
        sum += fill({MemoryId::gpu(0), via, MemoryId::gpu(1)});
    return sum;
  }

 private:
  double fill(const std::vector<MemoryId>& route) {
    double rate = std::numeric_limits<double>::infinity();
    std::vector<double*> used;
    for (std::size_t leg = 0; leg + 1 < route.size(); ++leg) {
      const int index = node_.find_link(route[leg], route[leg + 1]).value();
      used.push_back(&links_[static_cast<std::size_t>(index)]);
      for (const int port : node_.links[static_cast<std::size_t>(index)].ports)
        used.push_back(&ports_[static_cast<std::size_t>(port)]);
    }
    // A port that both legs share counts twice.
    for (double* const left : used)
      rate =
          std::min(rate, *left / static_cast<double>(std::count(used.begin(), used.end(), left)));
    for (double* const left : used) *left -= rate;
    return rate;
  }

  const Node& node_;
  std::vector<double> links_;
  std::vector<double> ports_;
};

struct Expected {
  const char* name;
  std::size_t gpus, hosts;
  LinkType peer;  ///< gpu0 to gpu1
  int peer_width;
  double peer_gbps;
  LinkType host;  ///< gpu0 to host0
  double d2h_gbps;
  /// Most from gpu0 to gpu1 by direct and GPU routes, direct and host routes, and all, over direct.
  double gpu_ratio, host_ratio, all_ratio;
};

void PrintTo(const Expected& row, std::ostream* out) { *out << row.name; }

constexpr auto kNvlink = LinkType::nvlink;
constexpr auto kSwitch = LinkType::nvswitch;
constexpr auto kPcie = LinkType::pcie;

// clang-format off
const Expected kTable[] = {
    // name          GPUs hosts peer        width GB/s  host           GB/s  by GPUs, by host, by
    // all
    {"beluga",          4, 1, kNvlink,          2,  46, kPcie,         12,   3.00, 1.26, 3.26},
    {"cedar",           4, 2, kNvlink,          2,  47, kPcie,         12,   3.00, 1.26, 3.26},
    {"dgx-a100-x8",     8, 2, kSwitch,         12, 279, kPcie,         25,   1.00, 1.08, 1.08},
    {"dgx-h200-x8",     8, 2, kSwitch,         18, 396, kPcie,         55.4, 1.00, 1.14, 1.14},
    {"dgx2-v100-x16",  16, 2, kSwitch,          6, 138, kPcie,         12,   1.00, 1.08, 1.08},
    {"full-mesh-x8",    8, 2, kNvlink,          1,  51, kPcie,         55.4, 7.00, 2.09, 8.09},
    {"gh200-quad",      4, 4, kNvlink,          6, 120, LinkType::c2c, 270,  3.00, 1.67, 3.67},
    {"hgx-h100-x8",     8, 2, kSwitch,         18, 396, kPcie,         55.4, 1.00, 1.14, 1.14},
    {"hgx-h200-x4",     4, 1, kSwitch,         18, 396, kPcie,         55.4, 1.00, 1.14, 1.14},
    {"marenostrum5",    4, 2, kNvlink,          6, 120, kPcie,         55,   3.00, 1.46, 3.46},
    {"mist",            4, 2, kNvlink,          3,  73, kNvlink,       73,   1.79, 2.00, 2.00},
    {"narval",          4, 1, kNvlink,          4,  93, kPcie,         25,   3.00, 1.27, 3.27},
    {"pcie-4gpu",       4, 1, LinkType::bounce, 16, 18, kPcie,         25,   1.39, 1.39, 1.39},
};
// clang-format on

class KnownNode : public testing::TestWithParam<Expected> {};

TEST_P(KnownNode, MatchesTheTable) {
  const Expected& row = GetParam();
  const Node node = read_node_file(find_node_file(row.name));
  EXPECT_EQ(node.name, row.name);
  EXPECT_EQ(node.gpus.size(), row.gpus);
  EXPECT_EQ(node.hosts.size(), row.hosts);
  const Link& peer = link_of(node, MemoryId::gpu(0), MemoryId::gpu(1));
  EXPECT_EQ(peer.type, row.peer);
  EXPECT_EQ(peer.width, row.peer_width);
  EXPECT_EQ(peer.gbps, row.peer_gbps);
  const Link& host = link_of(node, MemoryId::gpu(0), MemoryId::host(0));
  EXPECT_EQ(host.type, row.host);
  EXPECT_EQ(host.gbps, row.d2h_gbps);

  RouteFilling by_gpus(node);
  const double direct = by_gpus.direct();
  EXPECT_NEAR(1 + by_gpus.by(MemoryId::Kind::gpu) / direct, row.gpu_ratio, 0.005);
  RouteFilling by_all(node);
  by_all.direct();
  const double by_hosts = by_all.by(MemoryId::Kind::host);
  EXPECT_NEAR(1 + by_hosts / direct, row.host_ratio, 0.005);
  EXPECT_NEAR(1 + (by_hosts + by_all.by(MemoryId::Kind::gpu)) / direct, row.all_ratio, 0.005);
}

TEST_P(KnownNode, LinksEveryPairOfMemoriesWithAGpu) {
  const Node node = read_node_file(find_node_file(GetParam().name));
  for (const MemoryId from : node.memories())
    for (const MemoryId to : node.memories())
      if (from != to && (from.is_gpu() || to.is_gpu())) {
        EXPECT_TRUE(node.find_link(from, to)) << to_string(from) << " to " << to_string(to);
      }
}

TEST_P(KnownNode, ClaimsNoMoreThanTheDataSheet) {
  const Node node = read_node_file(find_node_file(GetParam().name));
  for (const Link& link : node.links)
    if (link.nominal_gbps > 0) {
      EXPECT_LE(link.gbps, link.nominal_gbps) << to_string(link.from);
    }
}

TEST_P(KnownNode, ReadsBackAsWritten) {
  const Node node = read_node_file(find_node_file(GetParam().name));
  const test::TemporaryFolder folder;
  EXPECT_TRUE(read_node_file(folder.write("back.toml", format_node_file(node))) == node);
}

INSTANTIATE_TEST_SUITE_P(Files, KnownNode, testing::ValuesIn(kTable), [](const auto& test) {
  std::string name = test.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(KnownNodes, EachHasItsRow) {
  std::set<std::string> rows, files;
  for (const Expected& row : kTable) rows.insert(row.name);
  for (const fs::path& file : known_node_files()) files.insert(file.stem().string());
  EXPECT_EQ(rows, files);
}

TEST(KnownNodes, EachFigureHasItsSource) {
  for (const fs::path& file : known_node_files()) {
    const toml::table table = toml::parse_file(file.string());
    EXPECT_FALSE(table["source"].value_or(std::string()).empty()) << file;
    for (const char* key : {"link", "port"}) {
      const toml::array* const entries = table[key].as_array();
      ASSERT_NE(entries, nullptr) << file;
      for (const toml::node& entry : *entries)
        EXPECT_FALSE((*entry.as_table())["source"].value_or(std::string()).empty())
            << file << ":" << entry.source().begin.line;
    }
  }
}

}  // namespace
}  // namespace polypath
