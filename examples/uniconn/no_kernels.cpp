// In place of the kernels, in a build without nvcc.
#include "cg_image.hpp"

namespace cg {

std::span<const unsigned char> cg_image() noexcept { return {}; }

}  // namespace cg
