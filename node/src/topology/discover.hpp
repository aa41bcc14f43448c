// The node that this process runs on, from the CUDA driver, NVML and the operating system.
#pragma once

#include "driver/cuda_driver.hpp"
#include "driver/nvml.hpp"
#include "topology/node.hpp"

namespace polypath {

/// The capacity graph of this node, with the default capacities of topology/defaults.hpp. GPUs have
/// the driver's order (after CUDA_VISIBLE_DEVICES). Creates no CUDA context. `nvml` may be null:
/// then NVLinks are not seen, and GPUs with peer access count as joined by PCI Express. Throws
/// NoDevice when there is no GPU, DriverError when a driver call fails.
Node discover_node(const CudaDriver& driver, const Nvml* nvml);

}  // namespace polypath
