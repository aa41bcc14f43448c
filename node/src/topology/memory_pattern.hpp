// The part of a [[link]] or [[port]] entry of a node file that says which links it is about:
// from, to, both_directions, distance.
#pragma once

#include <utility>
#include <vector>

#include "topology/node.hpp"
#include "topology/toml_table.hpp"

namespace polypath {

struct Selection {
  std::vector<std::pair<MemoryId, MemoryId>> pairs;  ///< (from, to) as the patterns have them
  bool both_directions = false;                      ///< each (to, from) as well
};

/// Reads these four keys. `node` has its GPUs and hosts already; the pairs need not be linked.
/// Throws InvalidArgument with file, line and what is allowed, also when no pair is left.
Selection read_selection(TomlTable& table, const Node& node);

}  // namespace polypath
