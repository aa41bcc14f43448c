// A call that sums rows over all ranks, adds a residual and normalises them (RMSNorm): what is
// asked for, and what is wrong with it.
#pragma once

#include <cstdint>

#include "collectives/call_arguments.hpp"
#include "collectives/collectives.hpp"

namespace polypath {

/// The allreduce that the call begins with, in rank order. It goes to the output; with an output of
/// FP8, which has no room for it, it replaces the input.
CollectiveCall all_reduce_of(const NormCall& call);

/// Type, rows, hidden and epsilon, which all ranks give alike. Throws InvalidArgument.
void require_norm_alike(const NormCall& call, int rank);
/// The buffers of a call that is alike. Throws InvalidArgument, which names the rank and the
/// argument.
void require_norm_buffers(const CudaDriver& driver, const NormCall& call, const CallerRank& caller);

/// What a kernel is told of the call; not of other ranks.
NormArgs norm_args_of(const NormCall& call);
/// The mark of a call by one kernel; `how` as call_mark().
CallMark mark_of(const NormCall& call, std::uint32_t how);

}  // namespace polypath
