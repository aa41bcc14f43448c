// Issues a spread (plan/spread_plan.hpp): the same bytes to several GPUs, each with a stream of its
// caller.
//
//   lease   a channel for each link of each tree, or the run is busy and nothing has happened
//   fork    an event on each caller's stream; the first caller's stream waits for all others
//   issue   the steps of its schedule
//   end     the leases end: others may take what they held
//   join    the first caller's stream waits for all of it, the others for the first one
//
// It is one operation on all streams, as a collective is: nothing is read before all streams have
// come to it, and none goes on before it has ended. A destination is also what others are fed from,
// so that its stream could not go on earlier.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "exec/route_resources.hpp"
#include "exec/transfer_sample.hpp"
#include "plan/spread_plan.hpp"

namespace polypath {

/// One destination.
struct SpreadEnd {
  int gpu = 0;
  CUdeviceptr dst = 0;
  CallerStream caller;
  int caller_gpu = 0;  ///< whose primary context the caller's stream belongs to
};

/// A spread with its addresses; `ends` are in the order of SpreadTrees::gpus.
struct BoundSpread {
  CUdeviceptr src = 0;
  std::vector<SpreadEnd> ends;
  /// To be timed on the first caller's stream, a route for each share; null: not.
  std::shared_ptr<TransferSample> sample = {};
};

/// How a run ended.
struct SpreadResult {
  int busy_link = -1;  ///< could not be leased, and nothing was issued
  int busy_gpu = -1;   ///< the feeder that it is of
  bool is_issued = false;
  /// Every caller's stream waits for all that was issued: native copies of all may follow.
  bool is_ordered = true;
  std::exception_ptr error = {};  ///< what failed, or null
};

/// All links of the plan's trees must be ready. Any thread. Throws nothing.
SpreadResult run_spread(const CudaDriver& driver, RouteResources& resources,
                        const SpreadTrees& trees, const SpreadPlan& plan,
                        const BoundSpread& spread) noexcept;

}  // namespace polypath
