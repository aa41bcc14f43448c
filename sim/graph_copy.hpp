// Reads what a caller says of a copy node.
#pragma once

#include "driver.hpp"

namespace polypath::sim {

/// The copy of these parameters, with its memory looked up.
///
/// Failure INVALID_CONTEXT when `context` is no live one; INVALID_VALUE when nothing is to be copied,
/// an address is out of bounds or freed, or memory is not of the type that the parameters name.
/// Failure NOT_SUPPORTED for arrays, more than one dimension, offsets, and pageable memory.
GraphCopy read_graph_copy(const Driver& driver, const CUDA_MEMCPY3D* parameters, CUcontext context);

}  // namespace polypath::sim
