// What a program may ask of a GPU and a node file does not say, by the GPU's name.
#pragma once

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
};

/// The traits of the model that the name contains; those of an H200 when none is known.
const DeviceTraits& device_traits(std::string_view gpu_name) noexcept;

/// The GPU's bus id, "0000:10:00.0": the node file's, or one made up of its index.
std::string pci_bus_id(const Node& node, int device);

}  // namespace polypath::sim
