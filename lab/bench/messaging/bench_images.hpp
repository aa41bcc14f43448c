// The compiled kernels of this folder, for cuModuleLoadData; in a build without nvcc a text that
// only a simulated driver takes.
#pragma once

#include <span>

namespace messaging_bench {

std::span<const unsigned char> queue_bench_image() noexcept;
std::span<const unsigned char> limits_bench_image() noexcept;
std::span<const unsigned char> remote_bench_image() noexcept;
std::span<const unsigned char> pool_bench_image() noexcept;
std::span<const unsigned char> collectives_bench_image() noexcept;
std::span<const unsigned char> channel_bench_image() noexcept;
std::span<const unsigned char> active_bench_image() noexcept;

}  // namespace messaging_bench
