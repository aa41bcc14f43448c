// What copies that share a link or port cost each other: one that starts halts those under way for
// Costs::copy_handover_us.
#pragma once

#include <vector>

#include "plan/plan.hpp"

namespace polypath {

/// By how much later the last route of these shares, [transfer][route], ends than its bytes alone
/// let it, microseconds; 0 where everything is one copy.
double handover_us(const Node& node, const std::vector<std::vector<RouteShare>>& shares);

}  // namespace polypath
