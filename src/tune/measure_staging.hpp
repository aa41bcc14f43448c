// Measures what a staged route costs beyond its bytes, by running one.
#pragma once

#include "tune/lanes.hpp"

namespace polypath {

/// `costs` with staged_fixed_us and staged_gap_us as a route from GPU 0 to GPU 1 by host memory (by
/// another GPU where there is none) shows them beside a direct copy: the time of one small chunk, and
/// the slope of a pipeline of many. Unchanged when the node has no such route. `lanes.node()` must have measured
/// links. Throws DriverError.
Costs measure_staging(Lanes& lanes, Costs costs, int repetitions);

}  // namespace polypath
