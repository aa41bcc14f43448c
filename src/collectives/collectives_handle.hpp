// The collectives behind a communicator's handle.
#pragma once

#include "collectives/collectives.hpp"
#include "comm/comm_handle.hpp"

namespace polypath {

/// Made by the first call, which is collective then. Throws InvalidArgument for null, and what the
/// constructor throws. `copies`: CollectivesOptions::copies, of that first call.
Collectives& collectives_of(polypath_comm* comm, bool copies = false);

}  // namespace polypath
