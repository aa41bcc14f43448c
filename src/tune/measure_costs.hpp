// Measures the times of single driver calls and copies that the planner counts with.
#pragma once

#include "driver/cuda_driver.hpp"
#include "topology/node.hpp"
#include "tune/lanes.hpp"

namespace polypath {

/// Times of copies from GPU 0 to its first peer (to host memory, when it has no peer): the fields of
/// Costs but copy_handover_us and context_create_us, which are taken from the node. All are read from
/// events, so that they hold for a simulated node as well: the CPU time of a call is the distance of
/// two events on an idle stream, recorded before and after a number of such calls on another.
/// Medians of `repetitions`. Throws DriverError.
Costs measure_costs(Lanes& lanes, int repetitions);

}  // namespace polypath
