// What the ranks of a communicator plan with: one capacity graph and one table of what was tuned,
// rank 0's, so that all come to the same plans even with different profiles.
#pragma once

#include <span>
#include <vector>

#include "collectives/plan/tuned_collective.hpp"
#include "comm/communicator.hpp"
#include "topology/node.hpp"

namespace polypath {

struct CollectivePlanInputs {
  Node node;
  std::vector<int> gpus;  ///< of each rank, an index into Node::gpus
  std::vector<TunedCollective> tuned;
};

/// Collective. `tuned`: what this rank's profile holds; that of rank 0 counts.
CollectivePlanInputs share_plan_inputs(Communicator& communicator,
                                       std::span<const TunedCollective> tuned);

}  // namespace polypath
