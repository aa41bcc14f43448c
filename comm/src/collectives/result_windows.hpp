// Whether other ranks may store results straight into this rank's `recv`
// (kernels/result_windows.cuh).
#pragma once

#include <cstdint>

#include "base/options.hpp"
#include "collectives/kernels/collective_args.h"
#include "comm/communicator.hpp"

namespace polypath {

/// Whether the rank announces where others may store results, by its setting. automatic: where
/// another rank is of this process, and its program is not one of another library (`stands_in`):
/// that may free buffers once its own rank has aborted.
bool has_direct_results(DirectResultsSetting setting, const Communicator& comm, bool stands_in);

/// Sets args.windows for a call by channels that receives `bytes` at args.out: for each peer whose
/// GPU addresses all of them. All peers address the communicator's symmetric memory. Those of this
/// process also address what cuMemAlloc gave in the context of the rank. Returns
/// whether a result goes straight there. Asks the driver at most once. The context of the rank is
/// current. Throws DriverError.
bool set_result_windows(UnevenArgs& args, const Communicator& comm, std::uint64_t bytes);

}  // namespace polypath
