// From what driver, NVML and operating system show of a node to a capacity graph with default
// capacities. Pure: no driver call.
#pragma once

#include <vector>

#include "topology/node.hpp"
#include "topology/nvlink_view.hpp"

namespace polypath {

/// One GPU as seen. All of it in the order of the CUDA driver.
struct ObservedGpu {
  Gpu gpu;                     ///< its `numa` is the operating system's number
  int compute_capability = 0;  ///< 90 is 9.0; 0: unknown
  NvlinkView nvlinks;
  /// It walks the CPU's page tables: by NVLink-C2C, or by NVLink to a POWER9.
  bool coherent_with_cpu = false;
  std::vector<bool> peer_access;  ///< to each GPU, itself included (any value)
};

/// The node: host memories of `domains` and of every domain that a GPU is in; a link between any
/// two GPUs and between any GPU and host memory; ports for what is shared:
/// - "nvlink-out.gpu0", "nvlink-in.gpu0": a GPU's links to the switch
/// - "pcie.gpu0" (or "nvlink.", "c2c."): a GPU's link to the host, both directions
/// - "host.host0": all host links of one NUMA domain, both directions
/// - "sockets": all that crosses NUMA domains
/// Name, title and source are left empty.
Node make_default_graph(const std::vector<ObservedGpu>& gpus,
                        const std::vector<HostMemory>& domains);

/// By its name, whether a port is one of host memory: "host.host0", or as measured
/// "host-read.host0" and "host-write.host0".
inline bool is_memory_port(const Port& port) { return port.name.starts_with("host"); }

}  // namespace polypath
