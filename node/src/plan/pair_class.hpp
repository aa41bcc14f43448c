// The class of a pair of memories: pairs of one class have the same kinds of links and routes, so
// what was tuned for one of them serves all.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace polypath {

/// "gpu to gpu, nvlink x4, via 2 gpu, 1 host": the ends, the type and width of the link between
/// them (or "no link"), and how many routes of each kind are staged; of host memory also whether it
/// is the GPU's nearest ("far"). Throws nothing; both memories must be of the node.
std::string pair_class(const Node& node, MemoryId src, MemoryId dst);

/// One pair of each class, with the lowest numbers: GPU to GPU, host to GPU, GPU to host.
std::vector<Request> one_of_each_class(const Node& node);

}  // namespace polypath
