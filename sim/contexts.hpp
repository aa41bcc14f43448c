// The calling thread's stack of contexts. Handles only: a context may be destroyed while it is on one.
#pragma once

#include <vector>

#include "cuda_api.hpp"

namespace polypath::sim {

/// The stack of the calling thread; its back is the current context.
std::vector<CUcontext>& context_stack() noexcept;

}  // namespace polypath::sim
