// The quick measurement of a node: the capacities that no table knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "driver/cuda_driver.hpp"
#include "topology/node.hpp"

namespace polypath {

/// Called before each step, on the measuring thread, and once at the end with done == total. May be
/// empty.
using ProgressFunction =
    std::function<void(std::size_t done, std::size_t total, const std::string& what)>;

struct MeasureOptions {
  std::uint64_t bytes = 64 * kMiB;  ///< of the largest copy
  int repetitions = 5;              ///< samples of each time, of which the median counts
};

/// `discovered` with measured capacities: of each link, that of one large copy over it alone; of
/// each port, what the links that share it carry at once (of links to several host memories, the
/// near ones); and the costs of calls and copies. Ports that a node of this kind has and that are
/// missing are added first (add_shared_ports). Every capacity is the slope between two sizes, so
/// the time to start is not in it.
///
/// A few seconds for eight GPUs. The node must be idle. Creates primary contexts for the time of
/// the measurement, and takes up to four times `bytes` of each memory. Throws DriverError, Error
/// when a time makes no sense, NoDevice when the driver has fewer GPUs than the node.
Node measure_capacities(const CudaDriver& driver, const Node& discovered,
                        const ProgressFunction& progress, const MeasureOptions& options = {});

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
/// with links between a GPU and the host memory nearest to it, these alone, because they suffice,
/// and other links would meet other limits first.
std::vector<int> filling_links(const Node& node, int port);

}  // namespace polypath
