#include "device_traits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace polypath::sim {
namespace {

// From the data sheets of the models.
constexpr std::array kTraits{
    DeviceTraits{"H200", 9, 0, 132, 4},  DeviceTraits{"H100", 9, 0, 132, 4},
    DeviceTraits{"GH200", 9, 0, 132, 4}, DeviceTraits{"A100", 8, 0, 108, 3},
    DeviceTraits{"V100", 7, 0, 80, 2},
};

}  // namespace

const DeviceTraits& device_traits(std::string_view gpu_name) noexcept {
  const auto known =
      std::find_if(kTraits.begin(), kTraits.end(), [gpu_name](const DeviceTraits& traits) {
        return gpu_name.find(traits.model) != gpu_name.npos;
      });
  return known == kTraits.end() ? kTraits.front() : *known;
}

std::string pci_bus_id(const Node& node, int device) {
  const std::string& known = node.gpus[static_cast<std::size_t>(device)].pci;
  return known.empty() ? fmt::format("0000:{:02x}:00.0", (device + 1) * 8) : known;
}

}  // namespace polypath::sim
