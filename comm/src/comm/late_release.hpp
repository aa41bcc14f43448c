// Memory of a rank that has left a communicator, freed in the background. Other ranks may not have
// left: a kernel of theirs may still read or write it, since an abort ends kernels only once they
// run. Or the memory is another rank's of this process: the driver frees it when the kernels of
// that GPU have ended, and one of them may wait for the thread that left last.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/control_segment.hpp"
#include "comm/rank_table.hpp"

namespace polypath {

/// Runs `releases`, those of ControlSegment::leave(), once no rank may reach into the memory any
/// more: it has left, or its process has ended. Not once `stops` says that the context is gone, or
/// that the process ends. Returns at once. Where no thread can be made the memory stays.
void release_late(const std::shared_ptr<ControlSegment>& board, const Members& members,
                  std::vector<std::function<void()>> releases,
                  std::function<bool()> stops) noexcept;

/// Returns once no release waits or runs in this process. For tests that count what is left.
void wait_for_late_releases();

}  // namespace polypath
