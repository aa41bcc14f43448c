#include "topology/defaults.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace polypath {
namespace {

struct NvlinkRate {
  int compute_capability;  ///< from this one on
  double gbps;             ///< per link and direction
};

// Source: data sheets of P100, V100, GA102, H100 and B200 (A100 is as V100).
constexpr std::array<NvlinkRate, 5> kNvlinkRates{
    {{0, 20}, {70, 25}, {86, 14.0625}, {90, 25}, {100, 50}}};

// GB/s of a PCIe link of width 1, each direction, by generation. Source: PCI Express base
// specifications, the rates usually quoted (16 GB/s for x16 of generation 3).
constexpr std::array<double, 7> kPcieGbps{0, 0.25, 0.5, 1, 2, 4, 8};
constexpr std::size_t kPcie3 = 3;
constexpr int kPcieUnknownWidth = 16;

// Copies between GPUs: 396 of 450 GB/s measured on 4 x H200, 46 of 50 and 93 of 100 in
// nodes/*.toml.
constexpr double kNvlinkFraction = 0.88;
// Copies to and from host memory: 0.75 to 0.87 on known nodes (nodes/*.toml), less where the CPU's
// cores use the memory too.
constexpr double kHostFraction = 0.65;
constexpr double kC2cNominalGbps = 450;  // data sheet of the GH200
constexpr double kC2cFraction = 0.5;
// Between sockets: half of the near rate, and never more than the slowest known way between two
// CPUs.
constexpr double kFarFraction = 0.5;
constexpr double kFarLimitGbps = 32;
constexpr double kPortCopies = 2;

double nvlink_nominal(int compute_capability, int links) {
  double gbps = kNvlinkRates.front().gbps;
  for (const NvlinkRate& rate : kNvlinkRates)
    if (compute_capability >= rate.compute_capability) gbps = rate.gbps;
  return gbps * links;
}

Capacity scaled(double nominal_gbps, double fraction) {
  return {nominal_gbps, nominal_gbps * fraction};
}

}  // namespace

Capacity nvlink_default(int compute_capability, int links) {
  return scaled(nvlink_nominal(compute_capability, links), kNvlinkFraction);
}

Capacity nvlink_host_default(int compute_capability, int links) {
  return scaled(nvlink_nominal(compute_capability, links), kHostFraction);
}

Capacity pcie_default(int generation, int width) {
  const std::size_t index =
      generation > 0 ? std::min(static_cast<std::size_t>(generation), kPcieGbps.size() - 1)
                     : kPcie3;
  const int known = width > 0 ? width : kPcieUnknownWidth;
  return scaled(kPcieGbps[index] * known, kHostFraction);
}

Capacity c2c_default() { return scaled(kC2cNominalGbps, kC2cFraction); }

Capacity far_default(Capacity near) {
  return {0, std::min(near.gbps * kFarFraction, kFarLimitGbps)};
}

double host_port_default(Capacity near) { return near.gbps * kPortCopies; }

double socket_port_default(Capacity far) { return far.gbps * kPortCopies; }

}  // namespace polypath
