// How long an allreduce takes of which a kernel carries most, while the sums of the last part go to
// all through host memory by copies (schedules.hpp, host_part_schedule): how large that part is
// best, and in what chunks.
//
// The part is so large that both end together: about where what is left on the links between GPUs
// takes as long as the part on those of host memory. Then the schedule next to the kernel's stores
// says more (schedule_time.hpp).
#pragma once

#include "collectives/plan/kernel_cost.hpp"

namespace polypath {

struct MixedCost {
  double us = 0;            ///< 0: it does not pay
  std::string reason;       ///< why not
  std::uint64_t count = 0;  ///< elements of the part
  std::uint64_t chunk_bytes = 0;
  int chunks = 0;
  KernelPlan kernel = {};  ///< for the rest
  std::vector<CollectiveStage> stages = {};
};

/// A message in two: what the kernel carries comes first.
struct MixedSplit {
  CollectiveRequest rest;  ///< the kernel's
  CollectiveRequest part;  ///< by copies; its count may be too small for them
  std::uint64_t chunk_bytes = 0;
};
/// `chunks` as in MixedCost. The kernel's part is rounded down to pieces of memory of all ranks.
MixedSplit mixed_split(const CollectiveRequest& request, std::uint64_t kernel_bytes, int chunks);

/// Whether scratch and host memory suffice for it.
bool has_memory(const Node& node, const CollectiveOptions& options, const MixedSplit& split);

/// What such a split takes; 0 us where scratch or host memory do not suffice.
MixedCost mixed_cost_of(const Node& node, const CollectiveOptions& options, const MixedSplit& split,
                        int chunks);

/// The best split into this number of chunks, as in MixedCost.
MixedCost mixed_cost_in(const Node& node, const CollectiveRequest& request,
                        const CollectiveOptions& options, int chunks);

/// For an allreduce of ranks that reach each other and have the links of host_part_schedule.
/// `must_reach`: the part of flat's time that it has to promise to be looked at closely; 0: it is
/// looked at in any case.
MixedCost mixed_cost(const Node& node, const CollectiveRequest& request,
                     const CollectiveOptions& options, double must_reach);

}  // namespace polypath
