// Patterns over the memories of a node, as node files write them: "gpu0", "gpu*", "host*".
#pragma once

#include <string>
#include <vector>

#include "topology/node.hpp"

namespace polypath {

/// The memories of `node` that any of the patterns names, each once, in the order of the patterns.
/// Throws InvalidArgument, with what is allowed, for a pattern that names none.
std::vector<MemoryId> match_memories(const Node& node, const std::vector<std::string>& patterns);

}  // namespace polypath
