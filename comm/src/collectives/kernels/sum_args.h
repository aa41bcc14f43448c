// What the kernel is told that combines elements within one GPU's memory: a step of a schedule that
// runs by copies. C++17, plain data.
#pragma once

#include <cstdint>

#include "collectives/kernels/collective_args.h"

namespace polypath {

/// to = (first op from[0]) op from[1] ..., element by element; as a tree, without `first`,
/// (from[0] op from[1]) op (from[2] op from[3]) ... Addresses are memory of this GPU,
/// aligned to their elements, that does not overlap, but `to` may be one of the others.
struct SumArgs {
  DataType type;
  Operator reduction;  ///< avg: divides what is not to stay partial
  std::uint8_t ranks;  ///< by which avg divides
  std::uint8_t from_count;
  bool to_partial;      ///< `to` is a partial sum, of the accumulator's type (request.hpp)
  std::uint64_t count;  ///< elements
  const void* first;    ///< a partial sum; null: none
  const void* from[kMaxRanks];
  void* to;
};

}  // namespace polypath
