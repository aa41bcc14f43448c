// The compiled kernels, as data: a fat binary for each type, with machine code for
// several GPUs and PTX for newer ones; a short text in a build without a CUDA compiler.
// cmake/Kernels.cmake makes them.
#pragma once

#include <span>

namespace polypath {

std::span<const unsigned char> collectives_bytes_image() noexcept;
std::span<const unsigned char> collectives_int8_image() noexcept;
std::span<const unsigned char> collectives_int32_image() noexcept;
std::span<const unsigned char> collectives_int64_image() noexcept;
std::span<const unsigned char> collectives_float16_image() noexcept;
std::span<const unsigned char> collectives_bfloat16_image() noexcept;
std::span<const unsigned char> collectives_float32_image() noexcept;
std::span<const unsigned char> collectives_float64_image() noexcept;
std::span<const unsigned char> norm_kernels_image() noexcept;

std::span<const unsigned char> collectives_tree_float16_image() noexcept;
std::span<const unsigned char> collectives_tree_bfloat16_image() noexcept;
std::span<const unsigned char> collectives_tree_float32_image() noexcept;
std::span<const unsigned char> collectives_tree_float64_image() noexcept;
std::span<const unsigned char> collectives_uneven_bytes_image() noexcept;
std::span<const unsigned char> collectives_uneven_int8_image() noexcept;
std::span<const unsigned char> collectives_uneven_int32_image() noexcept;
std::span<const unsigned char> collectives_uneven_int64_image() noexcept;
std::span<const unsigned char> collectives_uneven_float16_image() noexcept;
std::span<const unsigned char> collectives_uneven_bfloat16_image() noexcept;
std::span<const unsigned char> collectives_uneven_float32_image() noexcept;
std::span<const unsigned char> collectives_uneven_float64_image() noexcept;

}  // namespace polypath
