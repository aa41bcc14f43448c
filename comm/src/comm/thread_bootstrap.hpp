// The exchange of ranks that are threads of one process.
#pragma once

#include <chrono>
#include <vector>

#include "comm/host_all_gather.hpp"

namespace polypath {

/// One a rank, for as many exchanges as wanted. Throws CommunicatorError when a rank does not come
/// within `limit`, and from then on, on all ranks.
std::vector<HostAllGather> thread_exchanges(int size, std::chrono::milliseconds limit);

}  // namespace polypath
