// What the simulated driver counts, for the functions of polypath_sim.h.
#pragma once

#include <cstdint>
#include <vector>

namespace polypath::sim {

/// What has happened since the start or the last reset. Plain data under the driver's lock.
struct Counters {
  struct Moved {
    std::uint64_t bytes = 0;
    std::uint64_t copies = 0;
  };
  std::vector<Moved> links;  ///< by index into Node::links
  std::uint64_t copies = 0;  ///< of any kind
  std::uint64_t bounced = 0;
  std::uint64_t pageable = 0;
  std::uint64_t graphs_disturbed = 0;      ///< destroyed or given new parameters while in flight
  std::uint64_t stale_graph_launches = 0;  ///< refused: what a node needs is gone or another
  int contexts_at_once = 0;                ///< that were being made at the same time, at most
};

}  // namespace polypath::sim
