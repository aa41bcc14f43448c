// What a collective must give, element by element: contents that every rank can compute of every
// other, and their sums in rank order (one after another, half types in float with one rounding at
// the end) or as a tree (with a rounding at each node), so that a result is compared with no other
// library's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collectives/collective_types.h"

namespace polypath {

/// A collective with counts as NcclCommunicator::run() takes them.
struct CollectiveShape {
  CollectiveOp op = CollectiveOp::allreduce;
  DataType type = DataType::float32;
  Operator reduction = Operator::sum;
  std::uint64_t count = 0;
  int ranks = 1;
  int root = 0;
  SumOrder order = SumOrder::rank;

  /// Elements that `rank` gives, and receives; 0 where it takes no part in that (the others than
  /// root of a broadcast give nothing).
  [[nodiscard]] std::uint64_t sent(int rank) const;
  [[nodiscard]] std::uint64_t received(int rank) const;
};

/// Writes elements [first, first + size) of what `rank` gives. Floating-point numbers have signs
/// and exponents that vary, so that sums in another order differ, and products of eight neither
/// overflow nor vanish; integers have random bits. Uses all cores for large ranges.
void fill_contribution(std::span<std::byte> memory, DataType type, std::uint64_t seed, int rank,
                       std::uint64_t first = 0);

/// Index of the first element of `memory`, what `rank` received, that is not bit by bit what the
/// collective in its order gives; nothing when all agree. `any_order`: floating-point results may
/// be those of another order as well, with a rounding at each step.
std::optional<std::uint64_t> first_wrong_element(std::span<const std::byte> memory,
                                                 const CollectiveShape& shape, std::uint64_t seed,
                                                 int rank, bool any_order = false);

}  // namespace polypath
