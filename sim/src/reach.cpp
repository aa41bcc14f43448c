#include "reach.hpp"

#include <algorithm>

namespace polypath::sim {

Reach reach(const Pools& pools, const Context& context, const Allocation& allocation,
            CUmemAccess_flags required) {
  const auto allows = [&](const Access& access) {
    return (access.get(context.device) & required) == required ? Reach::direct : Reach::refused;
  };
  if (allocation.kind == Allocation::Kind::mapping) return allows(allocation.access);
  if (!allocation.is_on_device()) return Reach::direct;
  const auto reached = [](bool is_direct) { return is_direct ? Reach::direct : Reach::bounced; };
  if (allocation.import) return reached(allocation.context == context.handle);
  if (allocation.kind == Allocation::Kind::pool) return allows(pools.access(allocation.pool));
  return reached(allocation.device == context.device || context.peers.contains(allocation.context));
}

Reach reach(const Pools& pools, const Contexts& contexts, const Context& context,
            const Operand& operand, CUcontext own_context, CUmemAccess_flags access) {
  Reach worst = Reach::direct;
  const auto look = [&](const AllocationPtr& allocation) {
    if (!allocation) return;
    Reach result = reach(pools, context, *allocation, access);
    if (result == Reach::refused && own_context != nullptr &&
        reach(pools, contexts.get(own_context), *allocation, access) == Reach::direct)
      result = Reach::bounced;
    worst = std::max(worst, result);
  };
  look(operand.allocation);
  for (const AllocationPtr& each : operand.further) look(each);
  return worst;
}

}  // namespace polypath::sim
