// What a collective does, on what: shared by plans, kernels (device and host) and the C API. C++17.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polypath {

enum class CollectiveOp : std::uint8_t {
  allreduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  all_to_all
};

enum class DataType : std::uint8_t {
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  bfloat16,
  float32,
  float64
};

/// How two elements become one; `avg` divides the sum by the number of ranks.
enum class Operator : std::uint8_t { sum, product, min, max, avg };

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

}  // namespace polypath
