// Islands: ranks whose GPUs are linked better with each other than with the rest.
#pragma once

#include <vector>

#include "collectives/plan/request.hpp"

namespace polypath {

/// GB/s that one copy from one GPU's memory to another's reaches by their own link; 0 where the
/// GPUs do not reach each other (no link, or one of type bounce).
double peer_gbps(const Node& node, int from_gpu, int to_gpu) noexcept;

/// The ranks in islands, each in rank order, ordered by their lowest rank: ranks are of one island
/// when their links with each other carry at least three quarters of what the node's best links
/// between these GPUs carry. Where that parts nothing, and `by_socket` is set, ranks whose GPUs are
/// nearest to one host memory. One island where that parts nothing either, or leaves no two ranks
/// together.
std::vector<std::vector<int>> find_islands(const Node& node, const std::vector<int>& gpus,
                                           bool by_socket);

/// Whether the ranks, island after island, are in rank order.
bool in_rank_order(const std::vector<std::vector<int>>& islands) noexcept;
/// Whether they are the two halves of a tree over the ranks: then the sum of the ranks of each is a
/// node of it.
bool are_halves_of_tree(const std::vector<std::vector<int>>& islands) noexcept;

}  // namespace polypath
