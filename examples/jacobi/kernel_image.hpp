// The compiled kernels of jacobi.cu.
#pragma once

#include <span>

namespace jacobi {

/// For cuModuleLoadData; empty in a build without nvcc.
std::span<const unsigned char> jacobi_image() noexcept;

}  // namespace jacobi
