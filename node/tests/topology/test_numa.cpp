#include "topology/numa.hpp"

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace polypath {
namespace {

TEST(Numa, DomainsWithCpusAndMemory) {
  const test::TemporaryFolder sys;
  const std::filesystem::path nodes = "devices/system/node";
  sys.write(nodes / "node8/cpulist", "64-127\n");
  sys.write(nodes / "node8/meminfo", "Node 8 MemTotal:       2048 kB\nNode 8 MemFree: 1 kB\n");
  sys.write(nodes / "node0/cpulist", "0-63\n");
  sys.write(nodes / "node0/meminfo", "Node 0 MemTotal:       1024 kB\n");
  sys.write(nodes / "node4/cpulist", "\n");  // a GPU's memory
  sys.write(nodes / "node4/meminfo", "Node 4 MemTotal:       4096 kB\n");
  sys.write(nodes / "node9/cpulist", "128\n");
  sys.write(nodes / "node9/meminfo", "Node 9 MemTotal:       0 kB\n");
  sys.write(nodes / "possible", "0-9\n");
  EXPECT_EQ(numa_domains(sys.path()),
            (std::vector<HostMemory>{{0, 1024 * 1024}, {8, 2048 * 1024}}));
}

TEST(Numa, NoSysfsEntries_GiveNoDomains) {
  const test::TemporaryFolder sys;
  EXPECT_TRUE(numa_domains(sys.path()).empty());
  EXPECT_EQ(pci_numa_domain("0000:41:00.0", sys.path()), std::nullopt);
}

TEST(Numa, DomainOfAPciDevice) {
  const test::TemporaryFolder sys;
  sys.write("bus/pci/devices/0000:41:00.0/numa_node", "1\n");
  sys.write("bus/pci/devices/0000:42:00.0/numa_node", "-1\n");
  EXPECT_EQ(pci_numa_domain("0000:41:00.0", sys.path()), 1);
  EXPECT_EQ(pci_numa_domain("0000:42:00.0", sys.path()), std::nullopt);
}

}  // namespace
}  // namespace polypath
