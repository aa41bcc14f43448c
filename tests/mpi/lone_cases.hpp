// Cases of mpi_collectives that are no rows of calls: each makes its own.
#pragma once

#include <map>
#include <string>

#include "rank_gpu.hpp"

namespace polypath::test {

struct Calls {
  const RankGpu& gpu;
  std::map<std::string, int>& calls;  ///< counted
};

/// Between two groups of ranks, each of which gets what the other gives: in host memory, and on
/// GPUs.
void intercommunicator(Calls& run);

/// Communicators that ranks free in different orders, and not before they hear that another rank
/// has freed its own.
void freed_in_any_order(Calls& run);

/// The last rank is stopped in a collective that all agreed to, before its kernel, for as many
/// seconds as POLYPATH_TEST_PAUSE says.
void paused(Calls& run);

/// In place without a type of what is sent, which MPI does not look at, and elements that lie
/// backwards.
void unusual_types(Calls& run);

/// Derived datatypes of all kinds: of several arrays on the GPU and of host memory, by MPI_BOTTOM
/// as well, with gaps, backwards. Compared with MPI's calls in host memory.
void derived_types(Calls& run);
/// Another thread writes between the elements of a datatype while a call receives these.
void gaps_in_use(Calls& run);

/// Calls of more than 2 GiB: by elements of 8 and 16 bytes, and where MPI has counts of 64 bits by
/// more than 2^31 elements.
void huge(Calls& run);

/// The last of three ranks gets SIGKILL, or SIGSTOP, in a collective that all agreed to, and errors
/// come back.
void killed(Calls& run);
void stopped(Calls& run);
/// ... and errors end the program, as is MPI's default.
void stopped_fatally(Calls& run);

}  // namespace polypath::test
