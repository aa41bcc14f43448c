// The compiled kernels, as data: a fat binary each, with machine code for several GPUs and PTX for
// newer ones. cmake/Kernels.cmake makes them where there is a CUDA compiler.
#pragma once

#include <span>

namespace polypath {

/// link_copy.cu, for cuModuleLoadData. Empty in a library that was built without kernels.
std::span<const unsigned char> link_copy_image() noexcept;

/// copy_blocks.cu. In a library that was built without kernels, a text that only a simulated driver
/// takes.
std::span<const unsigned char> copy_blocks_image() noexcept;

}  // namespace polypath
