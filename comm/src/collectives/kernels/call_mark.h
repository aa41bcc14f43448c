// What a rank tells the others of a call that it begins: the operation, the type, the operator, the
// root, the number of elements, and a hash of what else must be alike. C++17, plain data.
#pragma once

#include <cstdint>

#include "collectives/collective_types.h"

namespace polypath {

/// `what`: from bit 0 the operation (3 bits), the type (4), the operator (3), the root (3) and
/// `how` (19).
struct CallMark {
  std::uint32_t what;
  std::uint64_t count;  ///< elements, as CollectiveArgs::count
};

inline constexpr unsigned kMarkTypeShift = 3;
inline constexpr unsigned kMarkOperatorShift = 7;
inline constexpr unsigned kMarkRootShift = 10;
inline constexpr unsigned kMarkHowShift = 13;

/// The root of what has none says what follows an allreduce.
inline constexpr std::uint32_t kMarkOfNorm = 1;
inline constexpr std::uint32_t kMarkOfNormToFloat8 = 2;

/// `how`: a hash of the plan and of the calls before this one; its upper 19 bits count.
constexpr CallMark call_mark(CollectiveOp op, DataType type, Operator reduction, std::uint32_t root,
                             std::uint64_t count, std::uint32_t how) {
  return {static_cast<std::uint32_t>(op) | static_cast<std::uint32_t>(type) << kMarkTypeShift |
              static_cast<std::uint32_t>(reduction) << kMarkOperatorShift | root << kMarkRootShift |
              (how >> kMarkHowShift) << kMarkHowShift,
          count};
}

/// In marks reduce_scatter and all_gather of uneven parts are operations of their own, and count
/// all elements.
inline constexpr std::uint32_t kMarkedReduceScatterv = 6;
inline constexpr std::uint32_t kMarkedAllGatherv = 7;
constexpr CallMark uneven_mark(CallMark mark) {
  const bool gathers = (mark.what & 7U) == static_cast<std::uint32_t>(CollectiveOp::all_gather);
  return {(mark.what & ~7U) | (gathers ? kMarkedAllGatherv : kMarkedReduceScatterv), mark.count};
}
constexpr bool is_uneven_mark(std::uint32_t what) { return (what & 7U) >= kMarkedReduceScatterv; }
/// The mark of an allreduce whose rows are normalised by the same kernel. Its count has both
/// numbers.
constexpr CallMark norm_mark(DataType type, bool to_float8, std::uint32_t rows,
                             std::uint32_t hidden, std::uint32_t how) {
  return call_mark(CollectiveOp::allreduce, type, Operator::sum,
                   to_float8 ? kMarkOfNormToFloat8 : kMarkOfNorm,
                   std::uint64_t{hidden} << 32 | rows, how);
}
constexpr std::uint32_t rows_of_mark(std::uint64_t count) {
  return static_cast<std::uint32_t>(count);
}
constexpr std::uint32_t hidden_of_mark(std::uint64_t count) {
  return static_cast<std::uint32_t>(count >> 32);
}

constexpr CollectiveOp op_of_mark(std::uint32_t what) {
  if ((what & 7U) == kMarkedReduceScatterv) return CollectiveOp::reduce_scatter;
  if ((what & 7U) == kMarkedAllGatherv) return CollectiveOp::all_gather;
  return static_cast<CollectiveOp>(what & 7U);
}
constexpr DataType type_of_mark(std::uint32_t what) {
  return static_cast<DataType>((what >> kMarkTypeShift) & 15U);
}
constexpr Operator operator_of_mark(std::uint32_t what) {
  return static_cast<Operator>((what >> kMarkOperatorShift) & 7U);
}
constexpr std::uint32_t root_of_mark(std::uint32_t what) { return (what >> kMarkRootShift) & 7U; }

/// One more value in a hash of 32 bits, all of which depend on all of it.
constexpr std::uint32_t hash_with(std::uint32_t hash, std::uint64_t value) {
  std::uint64_t mixed = (value ^ hash) * 0x9E3779B97F4A7C15U;
  mixed ^= mixed >> 32;
  mixed *= 0xD6E8FEB86659FD93U;
  return static_cast<std::uint32_t>(mixed >> 32);
}

}  // namespace polypath
