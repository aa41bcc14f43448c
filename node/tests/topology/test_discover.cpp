// Discovery on simulated nodes: what it sees must be what the node file says.
#include "topology/discover.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "driver/cuda_driver.hpp"
#include "driver/nvml.hpp"
#include "support/temporary_folder.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

namespace fs = std::filesystem;

enum class With { nvml, driver_alone };

/// Runs discover_node() on the simulated node in a process of its own, because a process never
/// changes its node, and hands the result over as a node file.
Node discover(const fs::path& node_file, With libraries, const fs::path& result) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("POLYPATH_NODE", node_file.c_str(), 1);
    std::string why;
    const auto driver = load_cuda_driver(POLYPATH_SIM, &why);
    const auto nvml = libraries == With::nvml ? load_nvml(POLYPATH_SIM, &why) : nullptr;
    if (driver == nullptr || (libraries == With::nvml && nvml == nullptr)) {
      std::fprintf(stderr, "%s\n", why.c_str());
      std::_Exit(1);
    }
    std::ofstream(result) << format_node_file(discover_node(*driver, nvml.get()));
    std::_Exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return read_node_file(result);
}

class Discovery : public testing::TestWithParam<std::string> {
 protected:
  const fs::path file_ = find_node_file(GetParam());
  const Node expected_ = read_node_file(file_);
  const test::TemporaryFolder folder_;
  const fs::path result_ = folder_.path() / "found.toml";
};

std::string describe(const Link& link) {
  return to_string(link.from) + " to " + to_string(link.to);
}

TEST_P(Discovery, FindsTheGpus) {
  const Node node = discover(file_, With::nvml, result_);
  ASSERT_EQ(node.gpus.size(), expected_.gpus.size());
  for (std::size_t i = 0; i < node.gpus.size(); ++i) {
    const Gpu& gpu = node.gpus[i];
    EXPECT_EQ(gpu.name, expected_.gpus[i].name);
    EXPECT_EQ(gpu.memory_bytes, expected_.gpus[i].memory_bytes);
    EXPECT_EQ(gpu.pcie_generation, expected_.gpus[i].pcie_generation);
    EXPECT_EQ(gpu.pcie_width, expected_.gpus[i].pcie_width);
    EXPECT_EQ(node.hosts.at(static_cast<std::size_t>(gpu.numa)).numa,
              expected_.hosts.at(static_cast<std::size_t>(expected_.gpus[i].numa)).numa);
    EXPECT_FALSE(gpu.pci.empty());
    EXPECT_TRUE(gpu.uuid.starts_with("GPU-")) << gpu.uuid;
  }
}

TEST_P(Discovery, FindsTheLinks) {
  const Node node = discover(file_, With::nvml, result_);
  for (const Link& link : expected_.links) {
    const auto index = node.find_link(link.from, link.to);
    ASSERT_TRUE(index) << describe(link);
    const Link& other = node.links[static_cast<std::size_t>(*index)];
    EXPECT_EQ(to_string(other.type), to_string(link.type)) << describe(link);
    EXPECT_EQ(other.width, link.width) << describe(link);
  }
}

TEST_P(Discovery, NeverPromisesMoreOfTheHostThanThereIs) {
  const Node node = discover(file_, With::nvml, result_);
  for (const Link& link : expected_.links) {
    if (link.from.is_gpu() && link.to.is_gpu()) continue;
    const auto index = node.find_link(link.from, link.to);
    ASSERT_TRUE(index) << describe(link);
    EXPECT_LT(node.links[static_cast<std::size_t>(*index)].gbps, link.gbps) << describe(link);
  }
  for (const Port& port : expected_.ports) {
    if (!port.name.starts_with("host")) continue;
    for (const Port& other : node.ports) {
      if (other.name.starts_with("host.")) {
        EXPECT_LT(other.gbps, port.gbps) << port.name;
      }
    }
  }
}

TEST_P(Discovery, WithoutNvmlPeersCountAsPcie) {
  const Node node = discover(file_, With::driver_alone, result_);
  for (const Link& link : node.links)
    EXPECT_TRUE(link.type == LinkType::pcie || link.type == LinkType::bounce ||
                link.type == LinkType::c2c)
        << describe(link);
}

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const fs::path& file : known_node_files()) names.push_back(file.stem().string());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Nodes, Discovery, testing::ValuesIn(known_names()), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

}  // namespace
}  // namespace polypath
