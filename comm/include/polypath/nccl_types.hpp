// NCCL's numbers of element types and reductions (nccl.h), for code that is built without NCCL.
// C++17.
#pragma once

#include <cstddef>

#include "polypath/types.h"

namespace polypath::nccl {

/// ncclDataType_t, by its numbers. Those beyond are of 8 bits and newer: polypath has none of them.
inline constexpr polypath_data_type kDataTypes[] = {
    POLYPATH_INT8,   POLYPATH_UINT8,   POLYPATH_INT32,   POLYPATH_UINT32,  POLYPATH_INT64,
    POLYPATH_UINT64, POLYPATH_FLOAT16, POLYPATH_FLOAT32, POLYPATH_FLOAT64, POLYPATH_BFLOAT16};

/// ncclRedOp_t, by its numbers. Those beyond are the program's own.
inline constexpr polypath_reduce_op kReduceOps[] = {POLYPATH_SUM, POLYPATH_PRODUCT, POLYPATH_MAX,
                                                    POLYPATH_MIN, POLYPATH_AVG};

namespace detail {
template <typename Value, std::size_t count>
constexpr int index_of(const Value (&table)[count], int value) {
  for (std::size_t i = 0; i < count; ++i)
    if (table[i] == value) return static_cast<int>(i);
  return -1;
}
template <typename Value, std::size_t count>
constexpr int value_at(const Value (&table)[count], int index) {
  return index >= 0 && static_cast<std::size_t>(index) < count ? table[index] : -1;
}
}  // namespace detail

/// NCCL's number of a polypath_data_type; -1: it has none.
constexpr int number_of_type(int type) { return detail::index_of(kDataTypes, type); }
/// NCCL's number of a polypath_reduce_op; -1: it has none.
constexpr int number_of_op(int op) { return detail::index_of(kReduceOps, op); }
/// The polypath_data_type of a number in NCCL; -1: there is none.
constexpr int type_of(int number) { return detail::value_at(kDataTypes, number); }
/// The polypath_reduce_op of a number in NCCL; -1: there is none.
constexpr int operator_of(int number) { return detail::value_at(kReduceOps, number); }

inline constexpr int kInt8 = number_of_type(POLYPATH_INT8);
inline constexpr int kSum = number_of_op(POLYPATH_SUM);

}  // namespace polypath::nccl
