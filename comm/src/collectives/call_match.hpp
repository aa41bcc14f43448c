// Whether the ranks make the same calls: what a rank says of its call, and what is said when
// another one differs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/collectives.hpp"
#include "collectives/kernels/call_mark.h"

namespace polypath {

/// The operator and the root count where the operation has them; `how` as call_mark().
CallMark mark_of(const CollectiveCall& call, std::uint32_t how);
/// The record of two marks that differ; `other`: whose mark came.
std::string mismatch_text(const wait_error& status, std::string_view other = "rank");

/// Collective: waits for the other ranks, on the host. Throws InvalidArgument, on all ranks alike,
/// where the call of one differs from that of rank 0. `number`: of the call.
void compare_calls(Communicator& communicator, const CollectiveCall& call, std::uint32_t number);

}  // namespace polypath
