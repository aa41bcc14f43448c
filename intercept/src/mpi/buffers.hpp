// What the memory is that a program passed to MPI, and host memory in its place where the MPI
// library takes no other.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "mpi/call_buffers.hpp"
#include "mpi/mpi_statistics.hpp"

namespace polypath::preload::mpi {

/// Where a buffer is.
struct Place {
  Reason problem = Reason::none;  ///< for which kernels cannot have it
  int gpu = -1;                   ///< the GPU whose memory it is; -1: none's
};

/// `element`: to how many bytes it has to be aligned.
Place place_of(const Buffer& buffer, std::size_t element) noexcept;

/// Of a communicator.
struct Sizes {
  int rank;
  int size;
  int remote_size;  ///< as in Ranks
};

/// Calls MPI's own function. Device memory is replaced by host memory where the library does not
/// take it: this is correct whatever the other ranks pass.
int call_mpi(const Call& call, const Sizes& sizes) noexcept;

}  // namespace polypath::preload::mpi
