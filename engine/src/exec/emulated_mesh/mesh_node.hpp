// A node as it would be with a full mesh of slower NVLinks between its GPUs: what the planner is to
// see while the executor carries each link's copies no faster than that (docs/emulated-mesh.md).
#pragma once

#include "topology/node.hpp"

namespace polypath {

/// Whether copies over the link are emulated: an NVLink between two GPUs, direct or through a
/// switch.
bool is_emulated(const Link& link) noexcept;

/// `node` with a capacity of `gbps` GB/s, of its own, for each NVLink between two GPUs. The ports
/// that only links between GPUs share, such as those to an NVSwitch, are gone; ports of host links
/// stay, and so do costs and all other links. Its name and title say what it is. Throws
/// InvalidArgument when the node has no such link, or one of them, or what shares a port that would
/// go, could not carry that much: "3 links of 200 GB/s share nvlink-out.gpu0, which carries 396
/// GB/s".
Node emulated_mesh(const Node& node, double gbps);

}  // namespace polypath
