// Carries out a collective of MPI by polypath.
#pragma once

#include "preload/mpi/ranks.hpp"

namespace polypath::preload::mpi {

/// How many bytes of room beside the buffers a call takes: MPI's data in place are where polypath's
/// kernels cannot have them.
std::size_t spare_bytes_of(const Call& call, std::size_t part_bytes, int size) noexcept;

/// All ranks have agreed to it. Waits for the end. What fails now is an error of MPI, for all
/// ranks: the others' kernels are under way. `datatype`: of the elements, where they are combined.
int carry(const Call& call, Ranks& ranks, const Engine& engine, std::size_t part_bytes,
          const Datatype* datatype) noexcept;

}  // namespace polypath::preload::mpi
