// The compiled kernels of a communicator, as data: fat binaries with machine code for several GPUs
// and PTX for newer ones; a short text in a build without a CUDA compiler, which a real driver
// refuses and the simulated one takes. cmake/Kernels.cmake makes them.
#pragma once

#include <span>

namespace polypath {

std::span<const unsigned char> stream_wait_image() noexcept;
std::span<const unsigned char> ll128_probe_image() noexcept;

}  // namespace polypath
