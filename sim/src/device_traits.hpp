// What programs ask about the node's GPUs: facts of the node, and traits that a node file does not
// have, by the GPU's name. Pure functions; no lock is needed.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "cuda_api.hpp"
#include "failure.hpp"
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

/// The index of the GPU. Failure INVALID_DEVICE when the node has none of this number.
inline int check_device(const Node& node, CUdevice device) {
  require(device >= 0 && static_cast<std::size_t>(device) < node.gpus.size(),
          CUDA_ERROR_INVALID_DEVICE);
  return device;
}

/// True when GPU `from` can reach the memory of GPU `to`: there is a link, and it does not bounce.
inline bool has_peer_link(const Node& node, int from, int to) {
  const auto link = node.find_link(MemoryId::gpu(from), MemoryId::gpu(to));
  return link && node.links[static_cast<std::size_t>(*link)].type != LinkType::bounce;
}

/// The NUMA domain that is nearest to the GPU.
inline MemoryId host_near(const Node& node, int device) {
  return MemoryId::host(node.gpus[static_cast<std::size_t>(device)].numa);
}

[[nodiscard]] inline int multiprocessors(const Node& node, int device) {
  return device_traits(node.gpus[static_cast<std::size_t>(device)].name).multiprocessors;
}

}  // namespace polypath::sim
