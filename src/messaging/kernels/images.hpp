// The compiled kernels that prove paths, as data (comm/kernels/images.hpp says how).
#pragma once

#include <span>

namespace polypath {

std::span<const unsigned char> line_proof_image() noexcept;

}  // namespace polypath
