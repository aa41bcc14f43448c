// The 8-bit floating-point type e4m3: a sign, 4 bits of exponent, 3 of fraction; no infinity.
#pragma once

#include <cstdint>

#include "simt/platform.cuh"

namespace polypath {

/// Rounded to nearest, ties to even; beyond 448, and infinity, become 448 with their sign, and a
/// NaN stays one. The same bits on all GPUs and on the host.
SIMT_DEVICE std::uint8_t to_float8(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(value));
  return static_cast<std::uint8_t>(pair);
#else
  constexpr std::uint32_t kMax = 0x43E00000U;        // 448
  constexpr std::uint32_t kMinNormal = 0x3C800000U;  // 2^-6
  const std::uint32_t bits = simt::detail::bits_of(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > simt::detail::kInfinity) return 0x7F;
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  if (magnitude >= kMax) return static_cast<std::uint8_t>(sign | 0x7EU);
  if (magnitude < kMinNormal) {
    // The addition rounds to a multiple of 2^-9, the distance of subnormals.
    const float sum = simt::detail::float_of(magnitude) + 16384.0F;
    return static_cast<std::uint8_t>(
        sign | (simt::detail::bits_of(sum) - simt::detail::bits_of(16384.0F)));
  }
  const std::uint32_t rebased = magnitude - ((127U - 7U) << 23);
  return static_cast<std::uint8_t>(sign | ((rebased + 0x7FFFFU + ((rebased >> 20) & 1U)) >> 20));
#endif
}

/// Two of them, `low` in the low byte.
SIMT_DEVICE std::uint32_t to_float8(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return to_float8(low) | std::uint32_t{to_float8(high)} << 8;
#endif
}

}  // namespace polypath
