#include "comm/node_map.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.hpp"
#include "core/version.hpp"

namespace polypath {
namespace {

template <std::size_t kBytes>
std::string_view text_of(const std::array<char, kBytes>& text) {
  return {text.data(), ::strnlen(text.data(), text.size())};
}

template <std::size_t kBytes>
void set_text(std::array<char, kBytes>& to, std::string_view text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), to.size()));
}

std::string differing(const NodeHello& hello, std::size_t rank, const NodeHello& first) {
  if (hello.magic != NodeHello::kMagic)
    return fmt::format("rank {} does not create a communicator across nodes, others do", rank);
  if (hello.protocol != first.protocol || text_of(hello.version) != text_of(first.version))
    return fmt::format("rank 0 runs polypath {}, rank {} runs {}: start all with the same one",
                       text_of(first.version), rank, text_of(hello.version));
  if (hello.problem) return fmt::format("rank {}: {}", rank, hello.problem.line());
  if (hello.size != first.size)
    return fmt::format("rank 0 says {} ranks, rank {} says {}", first.size, rank, hello.size);
  if (hello.rank != static_cast<int>(rank))
    return fmt::format("what came from rank {} stands in the place of rank {}", hello.rank, rank);
  if (hello.engine != first.engine)
    return fmt::format("ranks 0 and {} use different networks: NCCL, and messages", rank);
  return differing_order(hello.sum_order, rank, first.sum_order);
}

}  // namespace

NodeHello own_node_hello(int rank, int size) {
  NodeHello hello;
  hello.rank = rank;
  hello.size = size;
  set_text(hello.version, version());
  return hello;
}

void NodeHello::name_node(const std::string& name) {
  if (name.size() >= node.size())
    throw InvalidArgument(
        fmt::format("comm_node '{}' is longer than {} characters", name, node.size() - 1));
  const MachineId machine = this_machine();
  set_text(node, name == "auto" ? fmt::format("{:016x}{:016x}", machine.high, machine.low) : name);
}

NodeMap node_map(std::span<const NodeHello> hellos, int rank) {
  const auto refuse = [&](const std::string& why) {
    throw CommunicatorError(
        fmt::format("creating a communicator of {} ranks across nodes: {}", hellos.size(), why));
  };
  for (std::size_t at = 0; at < hellos.size(); ++at)
    if (const std::string why = differing(hellos[at], at, hellos.front()); !why.empty())
      refuse(why);

  std::vector<std::vector<int>> nodes;
  std::map<std::string_view, std::size_t> number;
  for (const NodeHello& hello : hellos) {
    const auto [known, is_new] = number.emplace(text_of(hello.node), nodes.size());
    if (is_new) nodes.emplace_back();
    nodes[known->second].push_back(hello.rank);
  }
  NodeMap map;
  map.rank = rank;
  map.nodes = static_cast<int>(nodes.size());
  map.per_node = static_cast<int>(nodes.front().size());
  map.places.resize(hellos.size());
  for (const std::vector<int>& node : nodes) {
    if (node.size() != nodes.front().size())
      refuse(
          fmt::format("the node of rank {} has {} ranks, that of rank {} has {}: start equally "
                      "many on each",
                      nodes.front().front(), nodes.front().size(), node.front(), node.size()));
    for (const int world_rank : node) {
      map.places[static_cast<std::size_t>(world_rank)] = map.size();
      map.ranks.push_back(world_rank);
    }
  }
  return map;
}

HostAllGather exchange_inside(const NodeMap& map, const HostAllGather& all) {
  return [&map, &all](std::span<const std::byte> bytes, std::span<std::byte> gathered) {
    std::vector<std::byte> of_all(bytes.size() * static_cast<std::size_t>(map.size()));
    all(bytes, of_all);
    for (int local = 0; local < map.per_node; ++local) {
      const auto from = static_cast<std::size_t>(map.rank_at(map.node(), local));
      std::memcpy(gathered.data() + static_cast<std::size_t>(local) * bytes.size(),
                  of_all.data() + from * bytes.size(), bytes.size());
    }
  };
}

}  // namespace polypath
