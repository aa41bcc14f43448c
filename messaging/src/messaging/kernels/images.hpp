// The compiled kernels that prove paths, as data (comm/kernels/images.hpp says how).
#pragma once

#include <span>

namespace polypath {

std::span<const unsigned char> ll128_probe_image() noexcept;

}  // namespace polypath
