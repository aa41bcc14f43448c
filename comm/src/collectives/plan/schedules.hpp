// The schedules of the algorithms that run by copies. `chunk_bytes` is the unit of pipelining: of a
// slice of each owner (flat), of a lane (hierarchical), of a slice of each round (ring).
#pragma once

#include "collectives/plan/collective_schedule.hpp"

namespace polypath {

/// The flat two stages by copies, all six operations: every owner gets its slice of all ranks, sums
/// in rank order, and gives the sum to all. In turns: each rank sends to one rank at a time and is
/// sent to by one. `by_host`: through the near host memory of the sender, a result down once and up
/// to all; for GPUs that do not reach each other.
CollectiveSchedule flat_schedule(const Node& node, const CollectiveRequest& request,
                                 std::uint64_t chunk_bytes, bool by_host);

/// Allreduce whose sums go to all through host memory: slices to their owners over the links
/// between GPUs, which sum in rank order; a sum goes down once to each host memory that is near to
/// another rank, and up from there to all. For the part of a message that goes so while a kernel
/// carries the rest. Small chunks first.
CollectiveSchedule host_part_schedule(const Node& node, const CollectiveRequest& request,
                                      std::uint64_t chunk_bytes);
/// What that schedule needs, without its steps.
struct HostPartMemory {
  std::uint64_t scratch_bytes = 0;  ///< of each rank
  std::uint64_t host_bytes = 0;     ///< of each host memory
};
HostPartMemory host_part_memory(const Node& node, const CollectiveRequest& request,
                                std::uint64_t chunk_bytes);
/// The link that is missing for it; empty when there is none.
std::string why_no_host_part(const Node& node, const CollectiveRequest& request);

/// Allreduce in three stages: in each island members give to their leader; partial sums go from
/// island to island and the result back; leaders broadcast inside. `lanes` parts of the message
/// have leaders of their own (lane l has rank l, modulo its size, of each island), so that all
/// links across are used.
/// All-gather: each rank gives its part to its island and to a leader in each other one, which
/// passes it on. Reduce-scatter: as the first two stages of allreduce, or with parts of the islands
/// after as they are, so that an owner's sum is in the same order. For both `lanes` is the number
/// of ranks.
/// Sums as a tree (CollectiveRequest::order): the islands are its two halves.
CollectiveSchedule hierarchical_schedule(const Node& node, const CollectiveRequest& request,
                                         const std::vector<std::vector<int>>& islands, int lanes,
                                         std::uint64_t chunk_bytes);

/// Allreduce around the ring of these ranks: n - 1 rounds that reduce, n - 1 that gather, over one
/// path a hop. The sum of slice s begins after rank s of the ring: no order of ranks.
CollectiveSchedule ring_schedule(const Node& node, const CollectiveRequest& request,
                                 const std::vector<int>& ring, std::uint64_t chunk_bytes);

/// The ring whose slowest hop is fastest; hops over links of type bounce count as what they reach.
/// Among equal ones the first in rank order.
std::vector<int> best_ring(const Node& node, const CollectiveRequest& request);

}  // namespace polypath
