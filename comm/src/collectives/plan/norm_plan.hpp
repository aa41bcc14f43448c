// How rows are summed and normalised: by one kernel, which is for few rows, or by an allreduce and
// a kernel of its own. A pure function, the same on all ranks.
#pragma once

#include <cstdint>

#include "collectives/plan/request.hpp"

namespace polypath {

struct NormPlan {
  bool is_fused = false;
  int blocks = 0;       ///< of the one kernel
  int team = 1;         ///< of these, that share a row
  double fused_us = 0;  ///< predicted, of one kernel; 0: it cannot run
  double apart_us = 0;  ///< of two
};

struct NormLimits {
  int max_blocks = 0;          ///< of a kernel that waits for other ranks; 0: what is best
  std::uint64_t max_rows = 0;  ///< that one kernel takes
};

/// `request`: the allreduce of all rows, `all_reduce_us` its predicted time.
NormPlan plan_norm(const Node& node, const CollectiveRequest& request, std::uint64_t rows,
                   const NormLimits& limits, double all_reduce_us);

/// Blocks of the kernel that only normalises.
unsigned norm_blocks(std::uint64_t rows);

}  // namespace polypath
