// What a profile is keyed by.
#pragma once

#include <string>

#include "topology/node.hpp"

namespace polypath {

/// 16 hexadecimal digits that change when the GPUs, the type or width of a link, or the driver
/// change; capacities do not count, so that a measured node keeps its fingerprint.
std::string fingerprint(const Node& node, const std::string& driver_version);

}  // namespace polypath
