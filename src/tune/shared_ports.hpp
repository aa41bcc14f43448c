// The ports that a measurement looks at.
#pragma once

#include <vector>

#include "topology/node.hpp"

namespace polypath {

/// Adds the ports at which links of such a node may meet, where no port of the name, or with just
/// these links, exists:
/// - "nvlink-out.gpu0", "nvlink-in.gpu0": a GPU's links to an NVSwitch, by direction
/// - "pcie-out.gpu0", "pcie-in.gpu0", "pcie.gpu0" (or "nvlink-host", "c2c"): what goes over a GPU's
///   link to the host: its links with host memory, and with GPUs that are reached that way
/// - "host-write.host0", "host-read.host0", "host.host0": a host memory's links with all GPUs
/// The new ports' capacity is the sum of their links'; the planner is not bound by them before they
/// are measured.
void add_shared_ports(Node& node);

/// The links (indices into Node::links) by which a port is filled: all that share it; but of a port
/// with links between a GPU and the host memory nearest to it, these alone, because they suffice, and
/// other links would meet other limits first.
std::vector<int> filling_links(const Node& node, int port);

}  // namespace polypath
