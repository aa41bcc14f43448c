// What a program may ask of a GPU and a node file does not say, by the GPU's name.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "topology/node.hpp"

namespace polypath::sim {

struct DeviceTraits {
  std::string_view model;  ///< part of the GPU's name
  int compute_major;
  int compute_minor;
  int multiprocessors;
  unsigned nvlink_version;
  int shared_bytes_of_block;  ///< the most, where a function asks for it
};

/// The traits of the model that the name contains; those of an H200 when none is known.
inline const DeviceTraits& device_traits(std::string_view gpu_name) noexcept {
  // From the data sheets of the models.
  static constexpr std::array kTraits{
      DeviceTraits{"H200", 9, 0, 132, 4, 227 << 10},  DeviceTraits{"H100", 9, 0, 132, 4, 227 << 10},
      DeviceTraits{"GH200", 9, 0, 132, 4, 227 << 10}, DeviceTraits{"A100", 8, 0, 108, 3, 163 << 10},
      DeviceTraits{"V100", 7, 0, 80, 2, 96 << 10},
  };
  const auto known = std::ranges::find_if(kTraits, [gpu_name](const DeviceTraits& traits) {
    return gpu_name.find(traits.model) != gpu_name.npos;
  });
  return known == kTraits.end() ? kTraits.front() : *known;
}

/// The GPU's bus id, "0000:10:00.0": the node file's, or one made up of its index.
inline std::string pci_bus_id(const Node& node, int device) {
  const std::string& known = node.gpus[static_cast<std::size_t>(device)].pci;
  return known.empty() ? fmt::format("0000:{:02x}:00.0", (device + 1) * 8) : known;
}

}  // namespace polypath::sim
