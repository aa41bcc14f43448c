// Patterns: pairs of sending and receiving ranks.
#pragma once

#include <string_view>
#include <vector>

namespace mpi_bench {

/// pair: ranks 0 and 1, 2 and 3, ... all at once; ring: each rank and the next, the last and the
/// first.
enum class Pattern { pair, ring };

/// One direction between this rank and a peer. The same direction has the same tag on both sides.
struct Flow {
  int peer;
  int tag;
};

/// What one rank does.
struct Flows {
  std::vector<Flow> to;    ///< it sends along these
  std::vector<Flow> from;  ///< and receives along these
};

/// One way: the even ranks of pairs send; in a ring each rank sends to the next.
Flows one_way(Pattern pattern, int rank, int size);

/// Both ways: also in the opposite direction.
Flows both_ways(Pattern pattern, int rank, int size);

/// Reads "pair" and "ring"; throws UsageError.
Pattern parse_pattern(std::string_view option, std::string_view value);

/// Throws UsageError when `size` ranks do not make this pattern.
void require_ranks(Pattern pattern, int size);

std::string_view to_string(Pattern pattern) noexcept;

}  // namespace mpi_bench
