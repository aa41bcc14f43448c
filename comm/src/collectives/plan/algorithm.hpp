// The algorithms of collectives, and their names.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace polypath {

enum class Algorithm : std::uint8_t {
  none,        ///< one rank of one node: a copy within its memory
  cells,       ///< one kernel a rank: cells of data with a flag in each, for small messages
  lines,       ///< one kernel a rank: lines of 128 bytes with a flag in each, where they come whole
  flat,        ///< one kernel a rank: slices to their owners, sums to all, pipelined in tiles
  relayed,     ///< flat, with slots on GPUs that are no ranks as well
  pairwise,    ///< flat, by copies: each rank sends to one rank at a time, and receives from one
  host_trees,  ///< flat, by copies through host memory: a result goes down once and up to all
  mixed,       ///< flat for most of a message; next to it the rest, whose sums go by host memory
  hierarchical,  ///< by copies: reduce inside islands, exchange between leaders, broadcast inside
  ring,          ///< by copies: the baseline; sums in another order, so only on request
};
std::string_view to_string(Algorithm algorithm) noexcept;
/// Throws InvalidArgument, which lists what there is.
Algorithm parse_algorithm(std::string_view text);

/// In the order in which equal ones are taken.
inline constexpr std::array kAlgorithms{
    Algorithm::none,         Algorithm::cells,    Algorithm::lines,      Algorithm::flat,
    Algorithm::relayed,      Algorithm::pairwise, Algorithm::host_trees, Algorithm::mixed,
    Algorithm::hierarchical, Algorithm::ring};

/// Whether it is run by one kernel on each rank alone; otherwise by a CollectiveSchedule, of mixed
/// next to a kernel.
constexpr bool runs_by_kernels(Algorithm algorithm) noexcept {
  return algorithm == Algorithm::cells || algorithm == Algorithm::lines ||
         algorithm == Algorithm::flat || algorithm == Algorithm::relayed;
}
/// Whether that kernel sends tiles through channels.
constexpr bool runs_by_channels(Algorithm algorithm) noexcept {
  return algorithm == Algorithm::flat || algorithm == Algorithm::relayed;
}
/// Whether its schedule goes through host memory.
constexpr bool uses_host(Algorithm algorithm) noexcept {
  return algorithm == Algorithm::host_trees || algorithm == Algorithm::mixed;
}

}  // namespace polypath
