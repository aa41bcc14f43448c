// Capacities to plan with until they are measured: data-sheet rates by type and generation, and how
// much of them a copy reaches. For GPU links the figure is what copies reach on known nodes. For
// all that leads to host memory it is deliberately low: an over-large share for the host costs more
// than a small one gains (docs/cuda-notes.md).
#pragma once

#include "topology/node.hpp"

namespace polypath {

struct Capacity {
  double nominal_gbps;  ///< data sheet, one direction
  double gbps;          ///< to plan with
};

/// `links` NVLinks between two GPUs, or a GPU and a switch. `compute_capability` (90 is 9.0) tells
/// the generation: what NVML calls the version of a link has meant different things.
Capacity nvlink_default(int compute_capability, int links);

/// `links` NVLinks between a GPU and its CPU.
Capacity nvlink_host_default(int compute_capability, int links);

/// A PCI Express link; generation or width 0 (unknown) count as 3 and 16.
Capacity pcie_default(int generation, int width);

/// NVLink-C2C between a Grace CPU and its GPU.
Capacity c2c_default();

/// The way from a GPU to the host memory of another NUMA domain, which starts on the link `near`.
Capacity far_default(Capacity near);

/// What all host links of one NUMA domain carry together, both directions, when the fastest of them
/// is `near`: two copies at once, or both legs of one staged route.
double host_port_default(Capacity near);

/// What all ways between NUMA domains carry together.
double socket_port_default(Capacity far);

}  // namespace polypath
