// A node as it is without peer access.
#pragma once

#include "topology/node.hpp"

namespace polypath {

/// The node, its links between GPUs those of copies that the driver carries through host memory
/// (LinkType::bounce): each takes the link of one GPU to its nearest host memory and the link from
/// there to the other GPU, and has the rate of the slower one.
Node without_peer_links(Node node);

}  // namespace polypath
