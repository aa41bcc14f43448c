// Measures the times of single driver calls and copies that the planner counts with, and what a
// staged route costs beyond its bytes, by running one.
#pragma once

#include "driver/cuda_driver.hpp"
#include "topology/node.hpp"
#include "tune/measuring_set.hpp"

namespace polypath {

/// Times of copies from GPU 0 to its first peer (to host memory, when it has no peer): the fields
/// of Costs but copy_handover_us and context_create_us, which are taken from the node. All are read
/// from events, so that they hold for a simulated node as well: the CPU time of a call is the
/// distance of two events on an idle stream, recorded before and after a number of such calls on
/// another. Medians of `repetitions`. Throws DriverError.
Costs measure_costs(MeasurementContext& set, int repetitions);

/// `costs` with staged_fixed_us and staged_gap_us as a route from GPU 0 to GPU 1 by host memory (by
/// another GPU where there is none) shows them next to a direct copy: the time of one small chunk,
/// and the slope of a pipeline of many. Unchanged when the node has no such route. `set.node()`
/// must have measured links. Throws DriverError.
Costs measure_staging(MeasurementContext& set, Costs costs, int repetitions);

}  // namespace polypath
