// How elements are combined: the operations of reduce_tile (polypath/device/tile.cuh), one a data
// type.
//
// In rank order, or as a tree over the ranks (SumOrder). The 16-bit types are combined as float: in
// rank order rounded once, at the end; as a tree at each node. Sums and products of integers wrap;
// their average is the (wrapped) sum, divided and truncated towards 0. min and max take the second
// operand only when it compares less or greater: a NaN stays if it came first.
#pragma once

#include <cstdint>
#include <type_traits>

#include "collectives/kernels/collective_args.h"
#include "collectives/kernels/mutants.h"
#include "simt/platform.cuh"

namespace polypath {

template <typename T>
struct SumOf {
  using type = T;
};
template <>
struct SumOf<simt::float16> {
  using type = float;
};
template <>
struct SumOf<simt::bfloat16> {
  using type = float;
};

/// What a Reduction is compiled for. An average has a division for each element, which takes
/// registers that sums alone do not need.
enum class Combining : std::uint8_t { sums, averages, others };

/// Calls `run` with the std::integral_constant of an operator's Combining.
template <typename Run>
SIMT_DEVICE void with_combining(Operator reduction, const Run& run) {
  if (reduction == Operator::sum)
    run(std::integral_constant<Combining, Combining::sums>{});
  else if (reduction == Operator::avg)
    run(std::integral_constant<Combining, Combining::averages>{});
  else
    run(std::integral_constant<Combining, Combining::others>{});
}

/// Integers are given as the unsigned type of their width.
template <typename T, Combining kCombining>
class Reduction {
 public:
  using Element = T;
  using Sum = typename SumOf<T>::type;

  SIMT_DEVICE explicit Reduction(const CollectiveArgs& args)
      : Reduction(args.reduction, args.type, simt::opaque(args.shape.ranks)) {}
  SIMT_DEVICE Reduction(Operator reduction, DataType type, std::uint32_t ranks)
      : operator_(reduction),
        is_signed_(type == DataType::int8 || type == DataType::int32 || type == DataType::int64),
        ranks_(ranks) {}

  SIMT_DEVICE Sum widen(T element) const {
    if constexpr (std::is_same_v<T, Sum>)
      return element;
    else
      return simt::to_float(element);
  }

  SIMT_DEVICE Sum combine(Sum sum, Sum next) const {
    if constexpr (kCombining != Combining::others) return static_cast<Sum>(sum + next);
    if (operator_ == Operator::product) return static_cast<Sum>(sum * next);
    const bool less = operator_ == Operator::min ? is_less(next, sum) : is_less(sum, next);
    return less ? next : sum;
  }

  SIMT_DEVICE T narrow(Sum sum) const {
    if constexpr (kCombining == Combining::averages) sum = divided(sum);
    if constexpr (std::is_same_v<T, simt::float16>)
      return simt::to_float16(sum);
    else if constexpr (std::is_same_v<T, simt::bfloat16>)
      return simt::to_bfloat16(sum);
    else
      return sum;
  }

 private:
  SIMT_DEVICE bool is_less(Sum a, Sum b) const {
    if constexpr (std::is_unsigned_v<Sum>) {
      using Signed = std::make_signed_t<Sum>;
      if (is_signed_) return static_cast<Signed>(a) < static_cast<Signed>(b);
    }
    return a < b;
  }
  SIMT_DEVICE Sum divided(Sum sum) const {
    if constexpr (std::is_unsigned_v<Sum>) {
      using Signed = std::make_signed_t<Sum>;
      if (is_signed_)
        return static_cast<Sum>(static_cast<Signed>(sum) / static_cast<Signed>(ranks_));
    }
    return static_cast<Sum>(sum / static_cast<Sum>(ranks_));
  }

  Operator operator_;
  bool is_signed_;
  std::uint32_t ranks_;
};

/// As a balanced binary tree. A node is an element: a rank whose element is the sum of two leaves
/// gives what the node of the two is. Of floating-point types; others have the same bits in any
/// order.
template <typename T, Combining kCombining>
class TreeReduction : public Reduction<T, kCombining> {
 public:
  struct combines_as_tree {};
  using Base = Reduction<T, kCombining>;
  using Base::Base;
  using typename Base::Sum;

  /// Sums are of values that elements have: narrow() of one that is not divided rounds nothing. The
  /// rounding of float to a 16-bit type after an addition or a product in float is that of the
  /// exact result, since float has more than twice as many bits.
  SIMT_DEVICE Sum combine(Sum sum, Sum next) const {
    const Sum node = Base::combine(sum, next);
    if constexpr (std::is_same_v<T, Sum>) {
      return node;
    } else {
      if (has_mutant(Fault::node_not_rounded)) return node;
      if constexpr (std::is_same_v<T, simt::float16>)
        return simt::to_float(simt::to_float16(node));
      else
        return simt::to_float(simt::to_bfloat16(node));
    }
  }
};

template <typename T, Combining kCombining, SumOrder kOrder>
using ReductionOf = std::conditional_t<kOrder == SumOrder::tree, TreeReduction<T, kCombining>,
                                       Reduction<T, kCombining>>;

/// The operations that combine nothing: bytes of any type, from one source.
struct Bytes {};

}  // namespace polypath
