// How two elements are combined, on host and device: in rank order, one after another, from
// first_of() to result_of(). C++17.
#pragma once

#include <type_traits>

#include "polypath/device/half.cuh"
#include "polypath/uniconn/words.hpp"

namespace polypath::uniconn::detail {

template <ReductionOperator kOperator>
inline constexpr bool kIsLogical =
    kOperator == ReductionOperator::LAND || kOperator == ReductionOperator::LOR ||
    kOperator == ReductionOperator::LXOR;

/// What the first rank's element is to the others'.
template <ReductionOperator kOperator, typename T>
POLYPATH_BOTH T first_of(T element) {
  if constexpr (kIsLogical<kOperator>) return static_cast<T>(element != T{});
  return element;
}

/// Integers wrap.
template <ReductionOperator kOperator, typename T>
POLYPATH_BOTH T combined(T a, T b) {
  using Op = ReductionOperator;
  if constexpr (kOperator == Op::MIN) return b < a ? b : a;
  if constexpr (kOperator == Op::MAX) return a < b ? b : a;
  if constexpr (kOperator == Op::LAND) return static_cast<T>(a != T{} && b != T{});
  if constexpr (kOperator == Op::LOR) return static_cast<T>(a != T{} || b != T{});
  if constexpr (kOperator == Op::LXOR) return static_cast<T>((a != T{}) != (b != T{}));
  if constexpr (std::is_integral_v<T>) {
    using U = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
    const auto x = static_cast<U>(a);
    const auto y = static_cast<U>(b);
    if constexpr (kOperator == Op::SUM || kOperator == Op::AVG) return static_cast<T>(x + y);
    if constexpr (kOperator == Op::PROD) return static_cast<T>(x * y);
    if constexpr (kOperator == Op::BAND) return static_cast<T>(x & y);
    if constexpr (kOperator == Op::BOR) return static_cast<T>(x | y);
    if constexpr (kOperator == Op::BXOR) return static_cast<T>(x ^ y);
  } else {
    if constexpr (kOperator == Op::SUM || kOperator == Op::AVG) return a + b;
    if constexpr (kOperator == Op::PROD) return a * b;
  }
  return a;
}

/// An average is the sum divided by the number of ranks, of integers towards zero.
template <ReductionOperator kOperator, typename T>
POLYPATH_BOTH T result_of(T sum, int ranks) {
  if constexpr (kOperator == ReductionOperator::AVG)
    return static_cast<T>(sum / static_cast<T>(ranks));
  return sum;
}

}  // namespace polypath::uniconn::detail
