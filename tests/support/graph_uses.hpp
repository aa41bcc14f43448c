// What a graph cache has counted, as a value that tests compare and print.
#pragma once

#include <ostream>

#include "exec/graph_cache.hpp"

namespace polypath::test {

struct GraphUses {
  std::uint64_t launches = 0;
  std::uint64_t hits = 0;
  std::uint64_t patches = 0;
  std::uint64_t patched_nodes = 0;
  std::uint64_t builds = 0;
  std::uint64_t evictions = 0;
  std::uint64_t failed = 0;
  std::uint64_t busy = 0;
  std::uint64_t cached = 0;

  friend bool operator==(const GraphUses&, const GraphUses&) = default;
};

inline GraphUses uses_of(const GraphCache::Counts& counts) {
  return {counts.launches,  counts.hits,   counts.patches, counts.patched_nodes, counts.builds,
          counts.evictions, counts.failed, counts.busy,    counts.cached};
}

inline void PrintTo(const GraphUses& uses, std::ostream* out) {
  *out << uses.launches << " launches, " << uses.hits << " hits, " << uses.patches << " patches of "
       << uses.patched_nodes << " nodes, " << uses.builds << " builds, " << uses.evictions
       << " evictions, " << uses.failed << " failed, " << uses.busy << " busy, " << uses.cached
       << " cached";
}

}  // namespace polypath::test
