// Combining elements of all ranks on the host, in rank order: for what a library does not reduce.
#pragma once

#include <cstring>

#include "polypath/device/detail/half.cuh"
#include "polypath/uniconn/reduction_ops.hpp"
#include "polypath/uniconn/types.hpp"

namespace polypath::uniconn::detail {

/// How an element lies in memory, and what it is combined as.
template <typename T>
struct Plain {
  using stored = T;
  using wide = T;
  static wide widen(stored value) { return value; }
  static stored narrow(wide value) { return value; }
};
/// Half types are combined as float, and rounded once.
struct HalfElement {
  using stored = device::float16;
  using wide = float;
  static wide widen(stored value) { return device::to_float(value); }
  static stored narrow(wide value) { return device::to_float16(value); }
};
struct BfloatElement {
  using stored = device::bfloat16;
  using wide = float;
  static wide widen(stored value) { return device::to_float(value); }
  static stored narrow(wide value) { return device::to_bfloat16(value); }
};

/// `parts`: of each of `ranks`, `count` elements, one rank after the other. `to` may be the first.
template <typename As, ReductionOperator Operator>
void combine(const std::byte* parts, int ranks, std::size_t count, std::byte* to) {
  using stored = typename As::stored;
  using wide = typename As::wide;
  const std::size_t pitch = count * sizeof(stored);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value_at = [&](int rank) {
      stored value{};
      std::memcpy(&value, parts + static_cast<std::size_t>(rank) * pitch + i * sizeof value,
                  sizeof value);
      return As::widen(value);
    };
    wide result = first_of<Operator>(value_at(0));
    for (int rank = 1; rank < ranks; ++rank) result = combined<Operator>(result, value_at(rank));
    const stored narrow = As::narrow(result_of<Operator>(result, ranks));
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
