// What the memory is that a program passed to MPI, and host memory in its place where the MPI
// library takes no other.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "preload/mpi/counts.hpp"

namespace polypath::preload::mpi {

/// A buffer of this rank's, as far as its call uses it.
struct Buffer {
  const void* address;
  std::size_t bytes;
};

/// The buffers of a call as polypath uses them: without gaps, types of this many bytes. `count`: of
/// them; returns how many.
std::size_t buffers_of(const Call& call, std::size_t part_bytes, int size, Buffer (&buffers)[2]);

/// Where a buffer is.
struct Place {
  Reason problem = Reason::none;  ///< for which kernels cannot have it
  int gpu = -1;                   ///< the GPU whose memory it is; -1: none's
};

/// `element`: to how many bytes it has to be aligned.
Place place_of(const Buffer& buffer, std::size_t element) noexcept;

/// Calls MPI's own function. Device memory is replaced by host memory where the library does not
/// take it: this is correct whatever the other ranks pass. `size`: of the communicator.
int call_mpi(const Call& call, int rank, int size) noexcept;

}  // namespace polypath::preload::mpi
