// The 16-bit types against the compiler's own half type, and against arithmetic on bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "polypath/device/detail/half.cuh"

namespace polypath::device {
namespace {

std::uint16_t reference_float16(float value) {
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

/// The nearest of all bfloat16 values, ties to the even one.
std::uint16_t reference_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto below = static_cast<std::uint16_t>(bits >> 16);  // towards zero
  const auto above = static_cast<std::uint16_t>(below + 1);
  const auto widen = [](std::uint16_t half) {
    // What lies one step after the largest value is where infinity begins.
    if ((half & 0x7FFF) == 0x7F80)
      return std::copysign(std::ldexp(1.0, 128), half & 0x8000 ? -1.0 : 1.0);
    return static_cast<double>(std::bit_cast<float>(std::uint32_t{half} << 16));
  };
  const double to_below = std::abs(static_cast<double>(value) - widen(below));
  const double to_above = std::abs(widen(above) - static_cast<double>(value));
  if (to_below != to_above) return to_below < to_above ? below : above;
  return below % 2 == 0 ? below : above;
}

TEST(Half, EveryFloat16WidensExactlyAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float16 half{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(half);
    const auto expected = static_cast<float>(std::bit_cast<_Float16>(half.bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      EXPECT_EQ(0x7FFF, to_float16(wide).bits);
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(expected), std::bit_cast<std::uint32_t>(wide)) << bits;
      EXPECT_EQ(half.bits, to_float16(wide).bits);
    }
  }
}

TEST(Half, FloatsNarrowToTheNearest) {
  std::mt19937 random(1);
  for (int i = 0; i < 4'000'000; ++i) {
    // Any exponent; half of them lie exactly between two float16 or bfloat16 values.
    std::uint32_t bits = static_cast<std::uint32_t>(random());
    if (i % 4 == 1) bits = (bits & ~0x1FFFU) | 0x1000U;
    if (i % 4 == 2) bits = (bits & ~0xFFFFU) | 0x8000U;
    if (i % 8 >= 4)
      bits = (bits & 0x807FFFFFU) | (100U + bits % 50U) << 23;  // near float16's range
    const auto value = std::bit_cast<float>(bits);
    if (std::isnan(value)) {
      EXPECT_EQ(0x7FFF, to_float16(value).bits);
      EXPECT_EQ(0x7FFF, to_bfloat16(value).bits);
      continue;
    }
    ASSERT_EQ(reference_float16(value), to_float16(value).bits) << std::hex << bits;
    if (std::isinf(value)) continue;
    ASSERT_EQ(reference_bfloat16(value), to_bfloat16(value).bits) << std::hex << bits;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(0x7F80, to_bfloat16(infinity).bits);
  EXPECT_EQ(0xFF80, to_bfloat16(-infinity).bits);
}

}  // namespace
}  // namespace polypath::device
