// The node files of the repository, by name.
#pragma once

#include <string>

#include "topology/node_file.hpp"

namespace polypath {

inline Node known(const std::string& name) {
  return read_node_file(std::string(NODES_DIR) + "/" + name + ".toml");
}

}  // namespace polypath
