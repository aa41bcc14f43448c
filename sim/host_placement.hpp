// In which NUMA domain of the simulated node new host memory lies.
#pragma once

#include "topology/node.hpp"

namespace polypath::sim {

/// The domain that the calling thread's memory policy prefers or is bound to, when it names exactly
/// one and the node has it; otherwise that of the current context's GPU, where a program that is
/// bound to its GPU's processor would find it.
MemoryId place_host_memory(const Node& node, int device);

}  // namespace polypath::sim
