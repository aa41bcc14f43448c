// The compiled kernel of busy.cu.
#pragma once

#include <span>

namespace polypath::facts {

/// For cuModuleLoadData; empty in a build without nvcc.
std::span<const unsigned char> busy_image() noexcept;

}  // namespace polypath::facts
