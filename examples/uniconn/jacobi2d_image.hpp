// The compiled kernel of jacobi2d_kernel.cu.
#pragma once

#include <span>

namespace uniconn_example {

/// For cuModuleLoadData; in a build without nvcc a text that only a simulated driver takes.
std::span<const unsigned char> jacobi2d_kernel_image() noexcept;

}  // namespace uniconn_example
