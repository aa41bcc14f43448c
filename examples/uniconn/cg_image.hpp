// The compiled kernels of cg.cu, and that of cg_kernel.cu.
#pragma once

#include <span>

namespace cg {

/// For cuModuleLoadData; empty in a build without nvcc.
std::span<const unsigned char> cg_image() noexcept;

}  // namespace cg

namespace uniconn_example {

/// As above; in a build without nvcc a text that only a simulated driver takes.
std::span<const unsigned char> cg_kernel_image() noexcept;

}  // namespace uniconn_example
