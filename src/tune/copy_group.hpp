// Measures what copies over several links carry together: the way to the capacity of a link (a group of
// one) and of a port (all the links that fill it).
#pragma once

#include <span>

#include "tune/lanes.hpp"

namespace polypath {

/// What copies over `links` (indices into Node::links, each at most once) carry together, GB/s: one
/// copy over each, all at once, as a user would issue it, a single cuMemcpyAsync in the context of the
/// source, or of the GPU when the source is host memory.
///
/// It is the slope between two sizes, so the time to start is not in it; the copies are issued while a
/// gate of small ones is under way, so the CPU's time is not in it either. A copy's part of the group
/// is in proportion to what it reached in a first run with equal parts: all finish together, and the
/// ports are busy to the end. Medians of `repetitions`.
///
/// Throws DriverError; Error when time did not grow with size.
double measure_together_gbps(Lanes& lanes, std::span<const int> links, int repetitions);

}  // namespace polypath
