// How a kernel combines elements of the ranks: an operation of reduce_tile
// (polypath/device/tile.cuh).
#pragma once

#include <cstdint>

#include "polypath/device/platform.cuh"
#include "polypath/uniconn/reduction_ops.hpp"

namespace polypath::uniconn::detail {

template <Element kElement>
struct StoredOf;
#define POLYPATH_STORED(name, type) \
  template <>                       \
  struct StoredOf<Element::name> {  \
    using Type = type;              \
  };
POLYPATH_STORED(int8, std::int8_t)
POLYPATH_STORED(uint8, std::uint8_t)
POLYPATH_STORED(int16, std::int16_t)
POLYPATH_STORED(uint16, std::uint16_t)
POLYPATH_STORED(int32, std::int32_t)
POLYPATH_STORED(uint32, std::uint32_t)
POLYPATH_STORED(int64, std::int64_t)
POLYPATH_STORED(uint64, std::uint64_t)
POLYPATH_STORED(float16, device::float16)
POLYPATH_STORED(bfloat16, device::bfloat16)
POLYPATH_STORED(float32, float)
POLYPATH_STORED(float64, double)
#undef POLYPATH_STORED

/// In rank order; half types as float, with one rounding.
template <ReductionOperator kOperator, typename Stored>
using Combine = device::in_rank_order<typename OperationOf<kOperator>::Type, Stored>;

}  // namespace polypath::uniconn::detail
