// Memory of ranks that have left a communicator which others have not: a kernel of those may still
// read or write it, since an abort ends kernels only once they run. It is freed in the background.
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

}  // namespace polypath
