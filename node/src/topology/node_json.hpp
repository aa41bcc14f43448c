// A node as JSON, for polypath_topology().
#pragma once

#include <nlohmann/json.hpp>

#include "topology/node.hpp"

namespace polypath {

/// The fields that polypath_topology() documents in polypath.h, as far as a node knows them: all
/// but simulated, fingerprint and capacities. "numa" is the operating system's number.
nlohmann::json to_json(const Node& node);

}  // namespace polypath
