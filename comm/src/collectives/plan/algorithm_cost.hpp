// What one algorithm takes for a request, and how it is run best.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/plan/collective_plan.hpp"

namespace polypath {

/// Whether scratch and host memory suffice for the schedule.
inline bool has_memory(const CollectiveOptions& options, const CollectiveSchedule& schedule) {
  return schedule.scratch_bytes <= options.scratch_bytes &&
         schedule.host_bytes <= options.host_bytes;
}

struct AlgorithmCost {
  Algorithm algorithm = Algorithm::none;
  double us = 0;  ///< predicted; 0: it cannot run, or was not timed
  std::optional<KernelPlan> kernel;
  std::vector<CollectiveStage> stages;
  std::uint64_t chunk_bytes = 0;  ///< of what runs by copies
  int lanes = 1;                  ///< of hierarchical
  std::string reason;             ///< why it cannot be taken, unless it is asked for and was timed
  std::uint64_t host_count = 0;   ///< of mixed: elements of the part
  int chunks = 0;                 ///< of mixed: chunks of the part
};

/// Times the schedules of an algorithm that runs by copies. Mixed is timed as well where it comes
/// close to what kernels take but cannot be taken: for costs between two sizes. A pure function.
AlgorithmCost cost_by_copies(const Node& node, const CollectiveRequest& request,
                             const CollectiveOptions& options, Algorithm algorithm);

}  // namespace polypath
