// One copy, as a program has asked the driver for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/intercepted.hpp"

namespace polypath::preload {

/// What the function that was called says of the two sides.
enum class Direction : std::uint8_t { any, gpu_to_gpu, host_to_gpu, gpu_to_host };
inline constexpr Direction kDirections[] = {Direction::any, Direction::gpu_to_gpu,
                                            Direction::host_to_gpu, Direction::gpu_to_host};
inline constexpr std::size_t kDirectionCount = sizeof kDirections / sizeof *kDirections;

constexpr std::size_t index_of(Direction direction) noexcept {
  return static_cast<std::size_t>(direction);
}

/// The contexts that a program names next to the addresses.
struct PeerContexts {
  CUcontext dst;
  CUcontext src;
};

struct Copy {
  Symbol symbol;
  Direction direction;
  CUdeviceptr dst;
  CUdeviceptr src;
  std::size_t bytes;
  CUstream stream;  ///< as the program gave it: stream_of() says which it means
  const PeerContexts* contexts = nullptr;  ///< null: none were named
};

inline CUdeviceptr address_of(CUdeviceptr address) noexcept { return address; }
inline CUdeviceptr address_of(const void* host) noexcept {
  return reinterpret_cast<CUdeviceptr>(host);
}

/// CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, or a stream that the program made: never 0.
inline CUstream stream_of(const Copy& copy) noexcept {
  if (copy.stream != nullptr) return copy.stream;
  const bool is_per_thread = replaced(copy.symbol).default_stream == DefaultStream::per_thread;
  return is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

}  // namespace polypath::preload
