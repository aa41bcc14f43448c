// The compiled kernel of a communicator's waits, as data: a fat binary with machine code for
// several GPUs and PTX for newer ones; a short text in a build without a CUDA compiler, which a
// real driver refuses and the simulated one takes. cmake/Kernels.cmake makes it.
#pragma once

#include <span>

namespace polypath {

std::span<const unsigned char> stream_wait_image() noexcept;

}  // namespace polypath
