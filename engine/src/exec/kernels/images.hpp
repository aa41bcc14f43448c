// The compiled kernels, as data: a fat binary each, with machine code for several GPUs and PTX for
// newer ones. cmake/Kernels.cmake makes them where there is a CUDA compiler.
#pragma once

#include <span>

namespace polypath {

/// link_copy.cu, for cuModuleLoadData. Empty in a library that was built without kernels.
std::span<const unsigned char> link_copy_image() noexcept;

}  // namespace polypath
