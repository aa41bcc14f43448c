// What the threads of a warp give, combined for all of them: by one instruction from sm_80 on.
#pragma once

#include <cstdint>

#include "polypath/device/platform.cuh"

namespace polypath::device::detail {

template <typename Combine>
POLYPATH_DEVICE std::uint32_t warp_combined(std::uint32_t value, const Combine& combine) {
  POLYPATH_UNROLL
  for (unsigned step = kWarp / 2; step > 0; step /= 2)
    value = combine(value, warp_shuffle_xor(value, step));
  return value;
}

POLYPATH_DEVICE std::uint32_t warp_sum(std::uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_add_sync(~0U, value);
#else
  return warp_combined(value,
                       [](std::uint32_t first, std::uint32_t other) { return first + other; });
#endif
}
POLYPATH_DEVICE std::uint32_t warp_min(std::uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_min_sync(~0U, value);
#else
  return warp_combined(value, [](std::uint32_t first, std::uint32_t other) {
    return other < first ? other : first;
  });
#endif
}
/// All bits that some thread gives.
POLYPATH_DEVICE std::uint32_t warp_bits(std::uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_or_sync(~0U, value);
#else
  return warp_combined(value,
                       [](std::uint32_t first, std::uint32_t other) { return first | other; });
#endif
}

}  // namespace polypath::device::detail
