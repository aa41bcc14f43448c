#pragma once

#include <cstddef>

#include "topology/node.hpp"

namespace polypath {

/// The link between two memories, which there must be.
inline const Link& link_of(const Node& node, MemoryId from, MemoryId to) {
  return node.links.at(static_cast<std::size_t>(node.find_link(from, to).value()));
}

}  // namespace polypath
