// Plans that follow what was tuned: the cost model's own where nothing is known, or where what is
// known cannot run. Pure functions, as plan_collective() is.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collectives/plan/collective_plan.hpp"
#include "collectives/plan/tuned_collective.hpp"

namespace polypath {

/// What one entry serves: how many ranks, by which links, in which islands: "4 ranks, nvlink x4";
/// "4 ranks, 4 by nvlink x2, 2 by nvlink x3, islands 0 1 | 2 3".
std::string collective_class(const Node& node, const std::vector<int>& gpus);

/// How a plan carries the collective out.
CollectiveVariant variant_of(const CollectivePlan& plan);

/// plan_collective(), and where `tuned` knows these ranks, this operation and about this size, and
/// `options` leave the choice open, the plan by its way; CollectivePlan::tuned then says so.
CollectivePlan plan_tuned_collective(const Node& node, const CollectiveRequest& request,
                                     const CollectiveOptions& options,
                                     std::span<const TunedCollective> tuned);

/// The best plan that uses no links of host memory, with the bits of plan_tuned_collective(): it
/// sums in rank order. `options` may ask for an algorithm, which counts for nothing here.
CollectivePlan plan_without_host(const Node& node, const CollectiveRequest& request,
                                 const CollectiveOptions& options,
                                 std::span<const TunedCollective> tuned);

/// What a tuner tries next to the plan of plan_collective(): kernels of one and two stages by
/// several numbers of blocks, schedules of copies by several sizes of chunks; without those that
/// the cost model finds three times as long as the plan, and those that only run when asked for.
std::vector<CollectiveVariant> candidate_variants(const Node& node,
                                                  const CollectiveRequest& request,
                                                  const CollectiveOptions& options);

}  // namespace polypath
