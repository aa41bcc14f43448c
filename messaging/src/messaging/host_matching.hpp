// Matching on the host, with the results of the kernels. Pure functions.
#pragma once

#include "polypath/device/detail/match_types.hpp"

namespace polypath {

/// In MPI's order; in time that grows as the batch does. Results may overlap nothing.
device::match_outcome match_mpi_on_host(const device::match_batch& batch);

// The relaxed orders: what they allow is matched in MPI's order, and so by the rules of each.
device::match_outcome match_partitioned_on_host(const device::match_batch& batch);
device::match_outcome match_hashed_on_host(const device::match_batch& batch);
device::match_outcome match_hashed_unique_on_host(const device::match_batch& batch);

}  // namespace polypath
