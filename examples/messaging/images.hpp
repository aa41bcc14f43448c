// The compiled kernels of this folder, for cuModuleLoadData; in a build without nvcc a text that
// only a simulated driver takes.
#pragma once

#include <span>

namespace messaging_example {

std::span<const unsigned char> himeno_kernel_image() noexcept;
std::span<const unsigned char> lists_kernel_image() noexcept;
std::span<const unsigned char> queens_kernel_image() noexcept;

}  // namespace messaging_example
