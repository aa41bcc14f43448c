// The compiled kernel of device_kernels.cu, as data; a short text in a build without a CUDA
// compiler, which the simulated driver takes all the same.
#pragma once

#include <span>

namespace polypath::test {

std::span<const unsigned char> device_kernels_image() noexcept;

}  // namespace polypath::test
