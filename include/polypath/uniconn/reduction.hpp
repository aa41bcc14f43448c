// Combining elements of all ranks on the host, in rank order: for what a library does not reduce.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "polypath/uniconn/types.hpp"

namespace polypath::uniconn::detail {

/// Half types are combined as float, and rounded once.
inline float float_of_half(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1fU;
  const std::uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13U));
  if (exponent == 0) {
    const float small = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -small : small;
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
}

/// To nearest, ties to even.
inline std::uint16_t half_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 65520.0F) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (magnitude < 0x1p-14F)  // in steps of 2^-24, by the host's own rounding
    return static_cast<std::uint16_t>(
        sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 24))));
  const std::uint32_t kept = (bits & 0x7fffffffU) - (112U << 23U);
  const std::uint32_t rounded = kept + 0xfffU + ((kept >> 13U) & 1U);
  return static_cast<std::uint16_t>(sign | (rounded >> 13U));
}

inline float float_of_bfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

inline std::uint16_t bfloat_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

/// How an element lies in memory, and what it is combined as.
template <typename T>
struct Plain {
  using stored = T;
  using wide = T;
  static wide widen(stored value) { return value; }
  static stored narrow(wide value) { return value; }
};
struct HalfElement {
  using stored = std::uint16_t;
  using wide = float;
  static wide widen(stored value) { return float_of_half(value); }
  static stored narrow(wide value) { return half_of_float(value); }
};
struct BfloatElement {
  using stored = std::uint16_t;
  using wide = float;
  static wide widen(stored value) { return float_of_bfloat(value); }
  static stored narrow(wide value) { return bfloat_of_float(value); }
};

/// Integers wrap.
template <ReductionOperator Operator, typename T>
T combined(T a, T b) {
  using enum ReductionOperator;
  if constexpr (Operator == MIN) return b < a ? b : a;
  if constexpr (Operator == MAX) return a < b ? b : a;
  if constexpr (Operator == LAND) return static_cast<T>(a != T{} && b != T{});
  if constexpr (Operator == LOR) return static_cast<T>(a != T{} || b != T{});
  if constexpr (Operator == LXOR) return static_cast<T>((a != T{}) != (b != T{}));
  if constexpr (std::is_integral_v<T>) {
    using U = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
    const auto x = static_cast<U>(a);
    const auto y = static_cast<U>(b);
    if constexpr (Operator == SUM || Operator == AVG) return static_cast<T>(x + y);
    if constexpr (Operator == PROD) return static_cast<T>(x * y);
    if constexpr (Operator == BAND) return static_cast<T>(x & y);
    if constexpr (Operator == BOR) return static_cast<T>(x | y);
    if constexpr (Operator == BXOR) return static_cast<T>(x ^ y);
  } else {
    if constexpr (Operator == SUM || Operator == AVG) return a + b;
    if constexpr (Operator == PROD) return a * b;
  }
  return a;
}

/// `parts`: of each of `ranks`, `count` elements, one rank behind the other. `to` may be the first.
template <typename As, ReductionOperator Operator>
void combine(const std::byte* parts, int ranks, std::size_t count, std::byte* to) {
  using stored = typename As::stored;
  using wide = typename As::wide;
  const std::size_t pitch = count * sizeof(stored);
  for (std::size_t i = 0; i < count; ++i) {
    const auto of = [&](int rank) {
      stored value{};
      std::memcpy(&value, parts + static_cast<std::size_t>(rank) * pitch + i * sizeof value,
                  sizeof value);
      return As::widen(value);
    };
    wide result = of(0);
    if constexpr (Operator == ReductionOperator::LAND || Operator == ReductionOperator::LOR ||
                  Operator == ReductionOperator::LXOR)
      result = static_cast<wide>(result != wide{});  // of one rank, too
    for (int rank = 1; rank < ranks; ++rank) result = combined<Operator>(result, of(rank));
    if constexpr (Operator == ReductionOperator::AVG)
      result = static_cast<wide>(result / static_cast<wide>(ranks));
    const stored narrow = As::narrow(result);
    std::memcpy(to + i * sizeof narrow, &narrow, sizeof narrow);
  }
}

using CombineFunction = void (*)(const std::byte* parts, int ranks, std::size_t count,
                                 std::byte* to);

template <ReductionOperator Operator>
CombineFunction combine_function(Element element) {
  constexpr bool is_bitwise = Operator == ReductionOperator::BAND ||
                              Operator == ReductionOperator::BOR ||
                              Operator == ReductionOperator::BXOR;
  switch (element) {
    case Element::int8: return &combine<Plain<std::int8_t>, Operator>;
    case Element::uint8: return &combine<Plain<std::uint8_t>, Operator>;
    case Element::int16: return &combine<Plain<std::int16_t>, Operator>;
    case Element::uint16: return &combine<Plain<std::uint16_t>, Operator>;
    case Element::int32: return &combine<Plain<std::int32_t>, Operator>;
    case Element::uint32: return &combine<Plain<std::uint32_t>, Operator>;
    case Element::int64: return &combine<Plain<std::int64_t>, Operator>;
    case Element::uint64: return &combine<Plain<std::uint64_t>, Operator>;
    case Element::float16:
      if constexpr (!is_bitwise) return &combine<HalfElement, Operator>;
      break;
    case Element::bfloat16:
      if constexpr (!is_bitwise) return &combine<BfloatElement, Operator>;
      break;
    case Element::float32:
      if constexpr (!is_bitwise) return &combine<Plain<float>, Operator>;
      break;
    case Element::float64:
      if constexpr (!is_bitwise) return &combine<Plain<double>, Operator>;
      break;
    case Element::none: break;
  }
  return nullptr;
}

/// Its combine_function, which is null for elements that it does not combine.
inline CombineFunction (*combine_function_of(ReductionOperator op))(Element) {
  using enum ReductionOperator;
  switch (op) {
    case SUM: return &combine_function<SUM>;
    case PROD: return &combine_function<PROD>;
    case MIN: return &combine_function<MIN>;
    case MAX: return &combine_function<MAX>;
    case AVG: return &combine_function<AVG>;
    case LAND: return &combine_function<LAND>;
    case LOR: return &combine_function<LOR>;
    case LXOR: return &combine_function<LXOR>;
    case BAND: return &combine_function<BAND>;
    case BOR: return &combine_function<BOR>;
    case BXOR: return &combine_function<BXOR>;
  }
  return nullptr;
}

}  // namespace polypath::uniconn::detail
