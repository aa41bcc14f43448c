// Whether lines of 128 bytes come whole from one GPU to another: nothing says so but a trial. Kept
// for the process, by path.
#pragma once

#include <utility>
#include <vector>

#include "comm/communicator.hpp"

namespace polypath {

/// Paths from a rank to a rank. `collective`: all ranks call it alike; else paths are from this
/// rank to itself. Throws NotSupported, the same on all ranks, for a path on which a line came
/// torn; CommunicatorError when a rank did not come.
void probe_ll128(Communicator& communicator, const std::vector<std::pair<int, int>>& paths,
                 bool collective);

}  // namespace polypath
