// How two elements are combined, on host and device: in rank order, one after another, from
// first_of() to result_of(), by the operations of polypath/device/detail/operations.hpp. C++17.
#pragma once

#include "polypath/device/detail/operations.hpp"
#include "polypath/uniconn/enums.hpp"

namespace polypath::uniconn::detail {

template <ReductionOperator kOperator>
struct OperationOf;
#define POLYPATH_OPERATION(name, operation)     \
  template <>                                   \
  struct OperationOf<ReductionOperator::name> { \
    using Type = device::operation;             \
  };
POLYPATH_OPERATION(SUM, plus)
POLYPATH_OPERATION(PROD, multiplies)
POLYPATH_OPERATION(MIN, minimum)
POLYPATH_OPERATION(MAX, maximum)
POLYPATH_OPERATION(AVG, average)
POLYPATH_OPERATION(LAND, logical_and)
POLYPATH_OPERATION(LOR, logical_or)
POLYPATH_OPERATION(LXOR, logical_xor)
POLYPATH_OPERATION(BAND, bit_and)
POLYPATH_OPERATION(BOR, bit_or)
POLYPATH_OPERATION(BXOR, bit_xor)
#undef POLYPATH_OPERATION

/// What the first rank's element is to the others'.
template <ReductionOperator kOperator, typename T>
POLYPATH_BOTH T first_of(T element) {
  return OperationOf<kOperator>::Type::first(element);
}
/// Integers wrap.
template <ReductionOperator kOperator, typename T>
POLYPATH_BOTH T combined(T a, T b) {
  return OperationOf<kOperator>::Type::combined(a, b);
}
/// An average is the sum divided by the number of ranks, of integers towards zero.
template <ReductionOperator kOperator, typename T>
POLYPATH_BOTH T result_of(T sum, int ranks) {
  return OperationOf<kOperator>::Type::result(sum, ranks);
}

}  // namespace polypath::uniconn::detail
