// What a collective does, on what: shared by plans, kernels (device and host) and the C API. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/types.h"

namespace polypath {

/// Channels: the least number of steps from a tile's sending to its taking
/// (kernels/collective_simple.cuh).
inline constexpr int kMinLag = 2;

enum class CollectiveOp : std::uint8_t {
  allreduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all
};

/// polypath_data_type.
enum class DataType : std::uint8_t {
  int8 = POLYPATH_INT8,
  uint8 = POLYPATH_UINT8,
  int32 = POLYPATH_INT32,
  uint32 = POLYPATH_UINT32,
  int64 = POLYPATH_INT64,
  uint64 = POLYPATH_UINT64,
  float16 = POLYPATH_FLOAT16,
  bfloat16 = POLYPATH_BFLOAT16,
  float32 = POLYPATH_FLOAT32,
  float64 = POLYPATH_FLOAT64
};

/// polypath_reduce_op: how two elements become one.
enum class Operator : std::uint8_t {
  sum = POLYPATH_SUM,
  product = POLYPATH_PRODUCT,
  min = POLYPATH_MIN,
  max = POLYPATH_MAX,
  avg = POLYPATH_AVG
};

/// polypath_sum_order: in which order the elements of ranks are combined.
enum class SumOrder : std::uint8_t {
  rank = POLYPATH_SUM_ORDER_RANK,  ///< one after another
  tree = POLYPATH_SUM_ORDER_TREE   ///< as a balanced binary tree over the ranks
};

/// Bytes of an element.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::int8:
    case DataType::uint8: return 1;
    case DataType::float16:
    case DataType::bfloat16: return 2;
    case DataType::int32:
    case DataType::uint32:
    case DataType::float32: return 4;
    case DataType::int64:
    case DataType::uint64:
    case DataType::float64: return 8;
  }
  return 0;
}

/// Whether the order of operands changes the bits of a result.
constexpr bool depends_on_order(DataType type) {
  switch (type) {
    case DataType::float16:
    case DataType::bfloat16:
    case DataType::float32:
    case DataType::float64: return true;
    case DataType::int8:
    case DataType::uint8:
    case DataType::int32:
    case DataType::uint32:
    case DataType::int64:
    case DataType::uint64: return false;
  }
  return false;
}

}  // namespace polypath
