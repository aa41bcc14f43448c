// The compiled kernels of matching, as data: a fat binary an order, with machine code for several
// GPUs and PTX for newer ones; a short text in a build without a CUDA compiler, which a real driver
// refuses and the simulated one takes. cmake/Kernels.cmake makes them.
#pragma once

#include <span>

namespace polypath {

std::span<const unsigned char> matching_mpi_image() noexcept;
std::span<const unsigned char> matching_partitioned_image() noexcept;
std::span<const unsigned char> matching_hashed_image() noexcept;

}  // namespace polypath
