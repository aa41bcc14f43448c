// The two 16-bit floating-point types, as bits, and their conversions. Rounded to nearest, ties to
// even; the same bits on the device and on the host. Every NaN narrows to 0x7FFF; what the payload
// of a NaN becomes when it is widened is the machine's matter.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define POLYPATH_BOTH __host__ __device__ __forceinline__
#else
#define POLYPATH_BOTH inline
#endif

namespace polypath::device {

struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

namespace detail {

POLYPATH_BOTH std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
POLYPATH_BOTH float float_of(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
inline constexpr std::uint32_t kInfinity = 0x7F800000U;  // of a float, without its sign
inline constexpr std::uint16_t kHalfNan = 0x7FFF;        // of both 16-bit types

}  // namespace detail

POLYPATH_BOTH float to_float(bfloat16 value) {
  return detail::float_of(static_cast<std::uint32_t>(value.bits) << 16);
}

POLYPATH_BOTH bfloat16 to_bfloat16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint16_t result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
  return {result};
#else
  const std::uint32_t bits = detail::bits_of(value);
  if ((bits & 0x7FFFFFFFU) > detail::kInfinity) return {detail::kHalfNan};
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  return {static_cast<std::uint16_t>(rounded >> 16)};
#endif
}

POLYPATH_BOTH float to_float(float16 value) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t magnitude = value.bits & 0x7FFFU;
  if (magnitude >= 0x7C00U)  // infinity, or NaN
    return detail::float_of(sign | detail::kInfinity | ((magnitude & 0x3FFU) << 13));
  if (magnitude >= 0x400U)  // exponents are 15 here and 127 there
    return detail::float_of(sign | ((magnitude << 13) + ((127U - 15U) << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24F;
  return detail::float_of(sign | detail::bits_of(subnormal));
#endif
}

POLYPATH_BOTH float16 to_float16(float value) {
#if defined(__CUDA_ARCH__)
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return {bits};
#else
  const std::uint32_t bits = detail::bits_of(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > detail::kInfinity) return {detail::kHalfNan};
  const auto result = [sign](std::uint32_t rounded) {
    return float16{static_cast<std::uint16_t>(sign | rounded)};
  };
  if (magnitude >= 0x477FF000U) return result(0x7C00U);  // 65520 and above round to infinity
  if (magnitude < 0x38800000U) {                         // below 2^-14: a subnormal, or 2^-14
    // The addition rounds to a multiple of 2^-24, the distance of subnormals.
    const float sum = detail::float_of(magnitude) + 0.5F;
    return result(detail::bits_of(sum) - detail::bits_of(0.5F));
  }
  const std::uint32_t rebased = magnitude - ((127U - 15U) << 23);
  return result((rebased + 0xFFFU + ((rebased >> 13) & 1U)) >> 13);
#endif
}

}  // namespace polypath::device
