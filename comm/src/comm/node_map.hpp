// Which ranks share a node, of a communicator across nodes: each rank tells all others where it is,
// and all come to the same map.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "comm/host_all_gather.hpp"
#include "comm/process.hpp"
#include "comm/rank_error.hpp"
#include "polypath/types.h"

namespace polypath {

/// What a rank tells the others before those of its node make their communicator. As long as Hello
/// (bootstrap.hpp), and its first members as there, so that ranks which do not both go across nodes
/// are told so.
struct NodeHello {
  static constexpr std::uint64_t kMagic = 0x50502d4e4f444553;  // "PP-NODES"
  static constexpr std::uint32_t kProtocol = 1;  ///< changes with what is sent between nodes
  enum class Engine : std::uint32_t { messages, nccl };

  std::uint64_t magic = kMagic;
  std::uint32_t protocol = kProtocol;
  std::array<char, 32> version{};

  std::int32_t rank = 0;
  std::int32_t size = 0;
  Engine engine = Engine::messages;
  std::array<char, 64> node{};  ///< its name
  RankError problem;            ///< what went wrong before
  polypath_sum_order sum_order = POLYPATH_SUM_ORDER_RANK;

  std::array<unsigned char, 388> unused{};

  /// "auto": this boot of this machine. Throws InvalidArgument for a name that is too long.
  void name_node(const std::string& name);
};
static_assert(sizeof(NodeHello) == 1024);

/// Nodes are numbered by their first ranks, ranks of a node in their order.
struct NodeMap {
  int rank = 0;             ///< this one, among all
  int nodes = 1;            ///< how many
  int per_node = 1;         ///< ranks of each
  std::vector<int> ranks;   ///< of all, by node and then by rank in the node
  std::vector<int> places;  ///< by rank: where in `ranks`

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks.size()); }
  [[nodiscard]] int node_of(int world_rank) const { return place_of(world_rank) / per_node; }
  /// Its rank in its node.
  [[nodiscard]] int local_of(int world_rank) const { return place_of(world_rank) % per_node; }
  [[nodiscard]] int node() const { return node_of(rank); }
  [[nodiscard]] int local() const { return local_of(rank); }
  [[nodiscard]] int rank_at(int node, int local) const {
    return ranks.at(static_cast<std::size_t>(node * per_node + local));
  }

 private:
  [[nodiscard]] int place_of(int world_rank) const {
    return places.at(static_cast<std::size_t>(world_rank));
  }
};

/// The record of this process; the caller fills in the node's name.
NodeHello own_node_hello(int rank, int size);

/// The map from all ranks' greetings, as `rank` sees it. Throws CommunicatorError, on all ranks
/// alike, with what to do: other versions, unequal numbers of ranks on the nodes.
NodeMap node_map(std::span<const NodeHello> hellos, int rank);

/// The exchange among the ranks of this node. All nodes do it in the same rounds of `all`, which
/// must outlive it.
HostAllGather exchange_inside(const NodeMap& map, const HostAllGather& all);

}  // namespace polypath
