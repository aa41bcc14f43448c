// What elements of ranks are combined by, as types: in rank order, one after another, from first()
// to result(). Integers wrap. C++17; host and device.
#pragma once

#include <type_traits>

#include "polypath/device/detail/half.cuh"

namespace polypath::device {

namespace detail {

/// What does the arithmetic of an integer, so that it wraps; floats are themselves.
template <typename T, bool kIsIntegral = std::is_integral_v<T>>
struct wrapping_of {
  using type =
      std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
};
template <typename T>
struct wrapping_of<T, false> {
  using type = T;
};
template <typename T>
using Wrapping = typename wrapping_of<T>::type;

/// An element is what it is, first and last.
struct plain_operation {
  template <typename T>
  static POLYPATH_BOTH T first(T element) {
    return element;
  }
  template <typename T>
  static POLYPATH_BOTH T result(T combined, int) {
    return combined;
  }
};
/// ... is true or false.
struct logical_operation : plain_operation {
  template <typename T>
  static POLYPATH_BOTH T first(T element) {
    return static_cast<T>(element != T{});
  }
};

}  // namespace detail

#define POLYPATH_OPERATION(name, base, expression)    \
  struct name : detail::base {                        \
    template <typename T>                             \
    static POLYPATH_BOTH T combined(T a, T b) {       \
      using U [[maybe_unused]] = detail::Wrapping<T>; \
      return static_cast<T>(expression);              \
    }                                                 \
  };
POLYPATH_OPERATION(plus, plain_operation, static_cast<U>(a) + static_cast<U>(b))
POLYPATH_OPERATION(multiplies, plain_operation, static_cast<U>(a) * static_cast<U>(b))
POLYPATH_OPERATION(minimum, plain_operation, b < a ? b : a)
POLYPATH_OPERATION(maximum, plain_operation, a < b ? b : a)
POLYPATH_OPERATION(bit_and, plain_operation, static_cast<U>(a) & static_cast<U>(b))
POLYPATH_OPERATION(bit_or, plain_operation, static_cast<U>(a) | static_cast<U>(b))
POLYPATH_OPERATION(bit_xor, plain_operation, static_cast<U>(a) ^ static_cast<U>(b))
POLYPATH_OPERATION(logical_and, logical_operation, a != T{} && b != T{})
POLYPATH_OPERATION(logical_or, logical_operation, a != T{} || b != T{})
POLYPATH_OPERATION(logical_xor, logical_operation, (a != T{}) != (b != T{}))
#undef POLYPATH_OPERATION

/// The sum divided by the number of ranks, of integers towards zero.
struct average : plus {
  template <typename T>
  static POLYPATH_BOTH T result(T sum, int ranks) {
    return static_cast<T>(sum / static_cast<T>(ranks));
  }
};

/// An operation of reduce_tile (tile.cuh): half types as float, with one rounding.
template <typename Operation, typename Stored>
class in_rank_order {
  static constexpr bool kIsHalf =
      std::is_same_v<Stored, float16> || std::is_same_v<Stored, bfloat16>;

 public:
  using Element = Stored;
  using Sum = std::conditional_t<kIsHalf, float, Stored>;

  POLYPATH_BOTH explicit in_rank_order(int ranks) : ranks_(ranks) {}

  /// For an element of any rank: what combined() does to others' elements it does not do to them
  /// twice.
  POLYPATH_BOTH Sum widen(Element element) const {
    if constexpr (kIsHalf)
      return Operation::first(to_float(element));
    else
      return Operation::first(element);
  }
  POLYPATH_BOTH Sum combine(Sum sum, Sum next) const { return Operation::combined(sum, next); }
  POLYPATH_BOTH Element narrow(Sum sum) const {
    sum = Operation::result(sum, ranks_);
    if constexpr (std::is_same_v<Stored, float16>)
      return to_float16(sum);
    else if constexpr (std::is_same_v<Stored, bfloat16>)
      return to_bfloat16(sum);
    else
      return sum;
  }

 private:
  int ranks_;
};

}  // namespace polypath::device
