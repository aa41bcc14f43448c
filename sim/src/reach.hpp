// How a GPU gets at memory, by what its context was given access to. Functions of the driver's
// state: called under its lock.
#pragma once

#include "contexts.hpp"
#include "cuda_api.hpp"
#include "memory.hpp"
#include "objects.hpp"
#include "pools.hpp"

namespace polypath::sim {

/// The better is less.
enum class Reach {
  direct,   ///< by the GPU itself
  bounced,  ///< the driver carries copies through host memory
  refused,
};

/// How work of the context gets at the allocation.
Reach reach(const Pools& pools, const Context& context, const Allocation& allocation,
            CUmemAccess_flags access);

/// The worst of all that the operand holds. Memory that the copying context may not use at all is
/// bounced if the side's own context may; null: no context is named.
Reach reach(const Pools& pools, const Contexts& contexts, const Context& context,
            const Operand& operand, CUcontext own_context, CUmemAccess_flags access);

}  // namespace polypath::sim
