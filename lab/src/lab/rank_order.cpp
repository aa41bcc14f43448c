#include "lab/rank_order.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/parallel_for.hpp"
#include "tune/pattern.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kElementsPerThread = std::uint64_t{1} << 18;

/// The bits of a half or bfloat16 number, which are summed as floats.
template <DataType kType>
struct Half {
  std::uint16_t bits;
};
using Float16 = Half<DataType::float16>;
using Bfloat16 = Half<DataType::bfloat16>;

float to_float(Bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

float to_float(Float16 value) {
  const int exponent = value.bits >> 10 & 31;
  const int mantissa = value.bits & 1023;
  float size = 0;
  if (exponent == 31)
    size = mantissa == 0 ? std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  else if (exponent == 0)
    size = std::ldexp(static_cast<float>(mantissa), -24);
  else
    size = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return (value.bits & 0x8000) != 0 ? -size : size;
}

void from_float(float value, Bfloat16& to) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // To nearest, to even between two.
  to.bits = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void from_float(float value, Float16& to) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (!(size < 65520)) {
    to.bits = static_cast<std::uint16_t>(sign | (std::isnan(value) ? 0x7e00 : 0x7c00));
    return;
  }
  // In units of the last place of its exponent, which nearbyint rounds to nearest even; a carry
  // into the exponent is the right number.
  const int exponent = size == 0 ? -14 : std::max(std::ilogb(size), -14);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  to.bits = static_cast<std::uint16_t>(sign | (((exponent + 14) << 10) + units));
}

template <typename T>
constexpr bool kHalf = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

template <typename Body>
void with_type(DataType type, Body body) {
  switch (type) {
    case DataType::int8: return body(std::int8_t{});
    case DataType::uint8: return body(std::uint8_t{});
    case DataType::int32: return body(std::int32_t{});
    case DataType::uint32: return body(std::uint32_t{});
    case DataType::int64: return body(std::int64_t{});
    case DataType::uint64: return body(std::uint64_t{});
    case DataType::float16: return body(Float16{});
    case DataType::bfloat16: return body(Bfloat16{});
    case DataType::float32: return body(float{});
    case DataType::float64: return body(double{});
  }
}

/// Element `index` of what `rank` gives.
template <typename T>
T contribution(std::uint64_t seed, int rank, std::uint64_t index) {
  const std::uint64_t word =
      pattern_word(seed + static_cast<std::uint64_t>(rank) * 0x632be59bd9b4e019, index);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(word);
  } else {
    // 1 to 2, times 2^-3 to 2^4, with a sign.
    const double value =
        std::bit_cast<double>((word & 8) << 60 | (1020 + (word & 7)) << 52 | word >> 12);
    if constexpr (kHalf<T>) {
      T half;
      from_float(static_cast<float>(value), half);
      return half;
    } else {
      return static_cast<T>(value);
    }
  }
}

template <typename A>
A combined(A value, A other, Operator how) {
  if constexpr (std::is_integral_v<A>) {
    // Sums and products of integers wrap.
    using Wide = std::make_unsigned_t<std::common_type_t<A, int>>;
    const auto a = static_cast<Wide>(value);
    const auto b = static_cast<Wide>(other);
    switch (how) {
      case Operator::sum:
      case Operator::avg: return static_cast<A>(a + b);
      case Operator::product: return static_cast<A>(a * b);
      case Operator::min: return std::min(value, other);
      case Operator::max: return std::max(value, other);
    }
  } else {
    switch (how) {
      case Operator::sum:
      case Operator::avg: return value + other;
      case Operator::product: return value * other;
      case Operator::min: return std::min(value, other);
      case Operator::max: return std::max(value, other);
    }
  }
  return value;
}

/// Element `index` of the contributions of `count` ranks from `first` on, combined as a tree.
template <typename T>
T tree(const CollectiveShape& shape, std::uint64_t seed, std::uint64_t index, int first,
       int count) {
  if (count == 1) return contribution<T>(seed, first, index);
  const int half = static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1)));
  const T left = tree<T>(shape, seed, index, first, half);
  const T right = tree<T>(shape, seed, index, first + half, count - half);
  if constexpr (kHalf<T>) {
    T node;
    from_float(combined(to_float(left), to_float(right), shape.reduction), node);
    return node;
  } else {
    return combined(left, right, shape.reduction);
  }
}

/// `sum` divided by the number of ranks.
template <typename T>
T divided(T sum, int ranks) {
  if constexpr (kHalf<T>) {
    from_float(to_float(sum) / static_cast<float>(ranks), sum);
    return sum;
  } else {
    return static_cast<T>(sum / static_cast<T>(ranks));
  }
}

/// Element `index` of all ranks' contributions, combined.
template <typename T>
T reduced(const CollectiveShape& shape, std::uint64_t seed, std::uint64_t index) {
  if (shape.order == SumOrder::tree) {
    const T sum = tree<T>(shape, seed, index, 0, shape.ranks);
    return shape.reduction == Operator::avg ? divided(sum, shape.ranks) : sum;
  }
  if constexpr (kHalf<T>) {
    float sum = to_float(contribution<T>(seed, 0, index));
    for (int rank = 1; rank < shape.ranks; ++rank)
      sum = combined(sum, to_float(contribution<T>(seed, rank, index)), shape.reduction);
    if (shape.reduction == Operator::avg) sum /= static_cast<float>(shape.ranks);
    T result;
    from_float(sum, result);
    return result;
  } else {
    T sum = contribution<T>(seed, 0, index);
    for (int rank = 1; rank < shape.ranks; ++rank)
      sum = combined(sum, contribution<T>(seed, rank, index), shape.reduction);
    if (shape.reduction == Operator::avg) sum = static_cast<T>(sum / static_cast<T>(shape.ranks));
    return sum;
  }
}

template <typename T>
T expected(const CollectiveShape& shape, std::uint64_t seed, int rank, std::uint64_t index) {
  const auto here = static_cast<std::uint64_t>(rank);
  switch (shape.op) {
    case CollectiveOp::allreduce:
    case CollectiveOp::reduce: return reduced<T>(shape, seed, index);
    case CollectiveOp::reduce_scatter: return reduced<T>(shape, seed, here * shape.count + index);
    case CollectiveOp::all_gather:
      return contribution<T>(seed, static_cast<int>(index / shape.count), index % shape.count);
    case CollectiveOp::broadcast: return contribution<T>(seed, shape.root, index);
    case CollectiveOp::all_to_all:
      return contribution<T>(seed, static_cast<int>(index / shape.count),
                             here * shape.count + index % shape.count);
  }
  return T{};
}

/// The machine epsilon of T.
template <typename T>
constexpr double kEpsilon = std::numeric_limits<T>::epsilon();
template <>
constexpr double kEpsilon<Float16> = 0x1p-10;
template <>
constexpr double kEpsilon<Bfloat16> = 0x1p-7;

template <typename T>
double number(T value) {
  if constexpr (kHalf<T>)
    return to_float(value);
  else
    return static_cast<double>(value);
}

/// Whether `actual` is what adding in any order, with a rounding at each step, may give.
template <typename T>
bool right_in_some_order(T actual, T right, const CollectiveShape& shape) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    // No contribution is larger than 32, no product than the right one.
    const bool product = shape.reduction == Operator::product;
    const double size = product ? std::fabs(number(right)) : 32.0 * shape.ranks;
    return std::fabs(number(actual) - number(right)) <= shape.ranks * kEpsilon<T> * size;
  }
}

}  // namespace

std::uint64_t CollectiveShape::sent(int rank) const {
  const auto all = static_cast<std::uint64_t>(ranks);
  switch (op) {
    case CollectiveOp::allreduce:
    case CollectiveOp::reduce:
    case CollectiveOp::all_gather: return count;
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::all_to_all: return count * all;
    case CollectiveOp::broadcast: return rank == root ? count : 0;
  }
  return 0;
}

std::uint64_t CollectiveShape::received(int rank) const {
  const auto all = static_cast<std::uint64_t>(ranks);
  switch (op) {
    case CollectiveOp::allreduce:
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::broadcast: return count;
    case CollectiveOp::reduce: return rank == root ? count : 0;
    case CollectiveOp::all_gather:
    case CollectiveOp::all_to_all: return count * all;
  }
  return 0;
}

void fill_contribution(std::span<std::byte> memory, DataType type, std::uint64_t seed, int rank,
                       std::uint64_t first) {
  with_type(type, [&]<typename T>(T) {
    parallel_for(memory.size() / sizeof(T), kElementsPerThread,
                 [=](std::uint64_t begin, std::uint64_t end) {
                   for (std::uint64_t i = begin; i < end; ++i) {
                     const T value = contribution<T>(seed, rank, first + i);
                     std::memcpy(memory.data() + i * sizeof(T), &value, sizeof(T));
                   }
                 });
  });
}

std::optional<std::uint64_t> first_wrong_element(std::span<const std::byte> memory,
                                                 const CollectiveShape& shape, std::uint64_t seed,
                                                 int rank, bool any_order) {
  std::optional<std::uint64_t> wrong;
  with_type(shape.type, [&]<typename T>(T) {
    const std::uint64_t size = memory.size() / sizeof(T);
    std::atomic<std::uint64_t> first = size;
    parallel_for(size, kElementsPerThread, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) {
        T actual;
        std::memcpy(&actual, memory.data() + i * sizeof(T), sizeof(T));
        const T right = expected<T>(shape, seed, rank, i);
        if (std::memcmp(&actual, &right, sizeof(T)) == 0 ||
            (any_order && right_in_some_order(actual, right, shape)))
          continue;
        std::uint64_t known = first.load();
        while (i < known && !first.compare_exchange_weak(known, i)) {
        }
        return;
      }
    });
    if (first < size) wrong = first.load();
  });
  return wrong;
}

}  // namespace polypath
