// How a kernel combines elements of the ranks: an operation of reduce_tile
// (polypath/device/tile.cuh).
#pragma once

#include <type_traits>

#include "polypath/device/platform.cuh"
#include "polypath/uniconn/combined.hpp"

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
class Combine {
  static constexpr bool kIsHalf =
      std::is_same_v<Stored, device::float16> || std::is_same_v<Stored, device::bfloat16>;

 public:
  using Element = Stored;
  using Sum = std::conditional_t<kIsHalf, float, Stored>;

  POLYPATH_DEVICE explicit Combine(int ranks) : ranks_(ranks) {}

  /// Of any rank: what combined() does to others' elements it does not do to them twice.
  POLYPATH_DEVICE Sum widen(Element element) const {
    if constexpr (kIsHalf)
      return first_of<kOperator>(device::to_float(element));
    else
      return first_of<kOperator>(element);
  }
  POLYPATH_DEVICE Sum combine(Sum sum, Sum next) const { return combined<kOperator>(sum, next); }
  POLYPATH_DEVICE Element narrow(Sum sum) const {
    sum = result_of<kOperator>(sum, ranks_);
    if constexpr (std::is_same_v<Stored, device::float16>)
      return device::to_float16(sum);
    else if constexpr (std::is_same_v<Stored, device::bfloat16>)
      return device::to_bfloat16(sum);
    else
      return sum;
  }

 private:
  int ranks_;
};

}  // namespace polypath::uniconn::detail
