#include "topology/defaults.hpp"

#include <gtest/gtest.h>

namespace polypath {
namespace {

TEST(Defaults, NvlinkByCapabilityAndCount) {
  EXPECT_EQ(nvlink_default(60, 1).nominal_gbps, 20);     // P100
  EXPECT_EQ(nvlink_default(70, 2).nominal_gbps, 50);     // V100
  EXPECT_EQ(nvlink_default(80, 4).nominal_gbps, 100);    // A100
  EXPECT_EQ(nvlink_default(86, 4).nominal_gbps, 56.25);  // A40
  EXPECT_EQ(nvlink_default(90, 18).nominal_gbps, 450);   // H100
  EXPECT_EQ(nvlink_default(100, 18).nominal_gbps, 900);  // B200
  EXPECT_EQ(nvlink_default(0, 2).nominal_gbps, 40);      // unknown
}

TEST(Defaults, PcieByGenerationAndWidth) {
  EXPECT_EQ(pcie_default(3, 16).nominal_gbps, 16);
  EXPECT_EQ(pcie_default(4, 16).nominal_gbps, 32);
  EXPECT_EQ(pcie_default(5, 8).nominal_gbps, 32);
  EXPECT_EQ(pcie_default(6, 16).nominal_gbps, 128);
  EXPECT_EQ(pcie_default(0, 0).nominal_gbps, 16);
  EXPECT_EQ(pcie_default(99, 16).nominal_gbps, 128);
}

TEST(Defaults, GpuLinksAreAsMeasured) { EXPECT_NEAR(nvlink_default(90, 18).gbps, 396, 0.5); }

TEST(Defaults, HostFiguresAreBelowEveryMeasuredOne) {
  EXPECT_LT(pcie_default(3, 16).gbps, 12);
  EXPECT_LT(pcie_default(4, 16).gbps, 25);
  EXPECT_LT(pcie_default(5, 16).gbps, 55);
  // All GPUs of one domain at once: 148 GB/s from four, 107 from two (docs/cuda-notes.md).
  EXPECT_LT(host_port_default(pcie_default(5, 16)), 107);
  EXPECT_LT(nvlink_host_default(70, 3).gbps, 73);
  EXPECT_LT(c2c_default().gbps, c2c_default().nominal_gbps);
}

TEST(Defaults, FarIsSlowerThanNear) {
  for (const Capacity near : {pcie_default(3, 16), pcie_default(6, 16), c2c_default()}) {
    EXPECT_LT(far_default(near).gbps, near.gbps);
    EXPECT_LT(socket_port_default(far_default(near)), host_port_default(near));
  }
}

}  // namespace
}  // namespace polypath
