// Carries out a collective of MPI by polypath.
#pragma once

#include "mpi/comm_state.hpp"

namespace polypath::preload::mpi {

/// All ranks have agreed to it. Waits for the end. What fails now is an error of MPI, for all
/// ranks: the others' kernels are under way. `datatype`: of the elements, where they are combined.
int carry(const Call& call, CommState& ranks, const Engine& engine, std::size_t part_bytes,
          const Datatype* datatype) noexcept;

}  // namespace polypath::preload::mpi
