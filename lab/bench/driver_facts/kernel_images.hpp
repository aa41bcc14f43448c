// The compiled kernels of the sections.
#pragma once

#include <span>

namespace polypath::facts {

// For cuModuleLoadData; empty in a build without nvcc.

std::span<const unsigned char> busy_image() noexcept;
std::span<const unsigned char> peer_stores_image() noexcept;

}  // namespace polypath::facts
