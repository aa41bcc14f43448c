// Whether lines of 128 bytes come whole from one GPU to another: nothing says so but a trial. Kept
// for the process, by path.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"

namespace polypath {

enum class ProbeCall : std::uint8_t {
  alone,     ///< by one rank, of paths from itself to itself
  together,  ///< by all ranks alike
  /// By all ranks alike, while kernels of other communicators may wait for one of them. To free
  /// memory would wait for these kernels: the 8 MiB of a rank stay until the communicator ends.
  beside_others
};

/// False on a simulated node where lines may come torn from one GPU to another. It says so itself,
/// since a trial there has few lines, and may find all of them whole.
[[nodiscard]] bool may_have_whole_lines(const CudaDriver& driver);

/// Paths from a rank to a rank. Throws NotSupported, the same on all ranks, for a path on which a
/// line came torn; CommunicatorError when a rank did not come.
void probe_ll128(Communicator& communicator, const std::vector<std::pair<int, int>>& paths,
                 ProbeCall call);

}  // namespace polypath
