// The clock of the CPU that issues calls: what CPU times are told by.
#pragma once

#include "core/node_source.hpp"
#include "tune/pairs.hpp"

namespace polypath {

/// Microseconds, from any origin: steady_clock_us on this machine's GPUs; on a simulated node the virtual
/// time of its CPU, by which its calls take what the node file says (steady_clock_us where the driver
/// library of the node does not tell it). May be called from any thread while the driver is loaded.
ClockFunction cpu_clock(const NodeSource& source);

}  // namespace polypath
