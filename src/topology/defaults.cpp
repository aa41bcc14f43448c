#include "topology/defaults.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace polypath {
namespace {

// GB/s per NVLink and direction, by nvmlNvlinkVersion_t. Source: data sheets of P100 (1.0), V100 (2.0,
// 2.2), A100 (3.0, 3.1), H100 (4.0) and B200 (5.0).
constexpr std::array<double, 8> kNvlinkGbps{0, 20, 25, 25, 25, 25, 25, 50};
constexpr std::size_t kNvlink20 = 2;

// GB/s per PCIe lane and direction, by generation. Source: PCI Express base specifications, the rates
// usually quoted (16 GB/s for 16 lanes of generation 3).
constexpr std::array<double, 7> kPcieLaneGbps{0, 0.25, 0.5, 1, 2, 4, 8};
constexpr std::size_t kPcie3 = 3;
constexpr int kPcieUnknownWidth = 16;

// Copies between GPUs: 396 of 450 GB/s measured on 4 x H200, 46 of 50 and 93 of 100 in nodes/*.toml.
constexpr double kNvlinkFraction = 0.88;
// Copies to and from host memory: 0.75 to 0.87 on known nodes (nodes/*.toml), less where the CPU's
// cores use the memory too.
constexpr double kHostFraction = 0.65;
constexpr double kC2cNominalGbps = 450;  // data sheet of the GH200
constexpr double kC2cFraction = 0.5;
// Between sockets: half of the near rate, and never more than the slowest known way between two CPUs.
constexpr double kFarFraction = 0.5;
constexpr double kFarLimitGbps = 32;
constexpr double kPortCopies = 2;

double nvlink_nominal(int nvml_version, int links) {
  const auto version = static_cast<std::size_t>(std::max(nvml_version, 0));
  const bool known = version > 0 && version < kNvlinkGbps.size();
  return kNvlinkGbps[known ? version : kNvlink20] * links;
}

Capacity scaled(double nominal_gbps, double fraction) {
  return {nominal_gbps, nominal_gbps * fraction};
}

}  // namespace

Capacity nvlink_default(int nvml_version, int links) {
  return scaled(nvlink_nominal(nvml_version, links), kNvlinkFraction);
}

Capacity nvlink_host_default(int nvml_version, int links) {
  return scaled(nvlink_nominal(nvml_version, links), kHostFraction);
}

Capacity pcie_default(int generation, int width) {
  const std::size_t index =
      generation > 0 ? std::min(static_cast<std::size_t>(generation), kPcieLaneGbps.size() - 1)
                     : kPcie3;
  const int lanes = width > 0 ? width : kPcieUnknownWidth;
  return scaled(kPcieLaneGbps[index] * lanes, kHostFraction);
}

Capacity c2c_default() { return scaled(kC2cNominalGbps, kC2cFraction); }

Capacity far_default(Capacity near) {
  return {0, std::min(near.gbps * kFarFraction, kFarLimitGbps)};
}

double host_port_default(Capacity near) { return near.gbps * kPortCopies; }

double socket_port_default(Capacity far) { return far.gbps * kPortCopies; }

}  // namespace polypath
