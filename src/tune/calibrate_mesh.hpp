// How many lanes give a link of an emulated mesh its rate.
#pragma once

#include "exec/emulated_mesh.hpp"

namespace polypath {

/// Measures, over each link of `mesh` alone, copies of 64 MiB with some numbers of lanes, and sets the number
/// whose rate is nearest to what the link is to carry. A warning says when that is more than 10 % off: one
/// lane is the step between rates. Tens of milliseconds; the node must be idle. Takes 128 MiB of each
/// GPU meanwhile. Throws DriverError. `node`: that of the mesh.
void calibrate_mesh(EmulatedMesh& mesh, const CudaDriver& driver, const Node& node);

}  // namespace polypath
