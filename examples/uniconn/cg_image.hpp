// The compiled kernels of cg.cu.
#pragma once

#include <span>

namespace cg {

/// For cuModuleLoadData; empty in a build without nvcc.
std::span<const unsigned char> cg_image() noexcept;

}  // namespace cg
