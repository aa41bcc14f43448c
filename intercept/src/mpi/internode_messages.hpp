// Messages of MPI between the nodes of a communicator, for polypath's collectives there. Only the
// thread that is in a call of the program for a collective sends and receives, so that any level
// of threads of the MPI library is enough.
#pragma once

#include "mpi/library.hpp"

namespace polypath::preload::mpi {

/// The communicator whose messages they are, and polypath's own copy of it once there are some: no
/// receive of the program may match them.
struct InternodeMessages {
  Handle handle = 0;
  Handle own = 0;
  bool has_own = false;
};

/// The MPI calls that end the network: for a thread of the program, where another thread destroys
/// polypath's communicator. Nothing may be under way.
void end_network(InternodeMessages& between) noexcept;

/// `between` must outlive the communicator of polypath.
polypath_network network_of(InternodeMessages& between) noexcept;

}  // namespace polypath::preload::mpi
