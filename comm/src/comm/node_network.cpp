#include "comm/node_network.hpp"

#include <utility>

#include "base/error.hpp"
#include "comm/host_message_transport.hpp"
#include "comm/nccl_transport.hpp"

namespace polypath {
namespace {

/// The records of all ranks, in the same rounds also after an error.
class Rounds {
 public:
  Rounds(const HostAllGather& exchange, int size) : exchange_(exchange), size_(size) {}

  template <typename Record>
  std::vector<Record> gather(const Record& local) const {
    std::vector<Record> all(static_cast<std::size_t>(size_));
    exchange_(std::as_bytes(std::span(&local, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }
  /// Throws on all ranks when `body` throws on one.
  template <typename Body>
  void together(const char* what, const Body& body) const {
    Opened opened;
    opened.problem.catch_from(body);
    throw_first_error(gather(opened), what);
  }

 private:
  const HostAllGather& exchange_;
  int size_;
};

bool is_nccl(const polypath_network& network) { return &network == &nccl_network(); }

std::unique_ptr<NetworkTransport> connect_nccl(Communicator& local, const NodeMap& map,
                                               const Rounds& rounds) {
  std::unique_ptr<NcclTransport> engine;
  NcclTransport::Hello hello;
  hello.problem.catch_from([&] {
    engine = std::make_unique<NcclTransport>(local, map);
    if (map.node() == 0) engine->fill(hello);
  });
  const auto hellos = rounds.gather(hello);
  throw_first_error(hellos, "finding NCCL");
  rounds.together("connecting the nodes by NCCL", [&] {
    engine->connect(hellos[static_cast<std::size_t>(map.rank_at(0, map.local()))]);
  });
  return engine;
}

}  // namespace

const polypath_network& nccl_network() noexcept {
  static constexpr polypath_network nccl{};
  return nccl;
}

MultiNodeRank create_across_nodes(std::shared_ptr<const CudaDriver> driver, const Node& node,
                                  const CommunicatorOptions& options,
                                  const polypath_network& network, const std::string& node_name) {
  if (options.size < 1) throw InvalidArgument(fmt::format("size is {}", options.size));
  if (!options.exchange) throw InvalidArgument("exchange is null");
  const Rounds rounds(options.exchange, options.size);
  NodeHello hello = own_node_hello(options.rank, options.size);
  hello.sum_order = options.sum_order;
  hello.problem.catch_from([&] {
    hello.name_node(node_name);
    if (!is_nccl(network) &&
        (network.begin == nullptr || network.send == nullptr || network.receive == nullptr ||
         network.test == nullptr || network.end == nullptr))
      throw InvalidArgument("network lacks a function");
  });
  hello.engine = is_nccl(network) ? NodeHello::Engine::nccl : NodeHello::Engine::messages;

  MultiNodeRank rank;
  auto links = std::make_unique<NodeNetwork>();
  links->map = node_map(rounds.gather(hello), options.rank);
  const NodeMap& map = links->map;
  CommunicatorOptions inside = options;
  inside.rank = map.local();
  inside.size = map.per_node;
  inside.exchange = exchange_inside(map, options.exchange);
  if (map.nodes == 1) {
    rank.local = std::make_unique<Communicator>(std::move(driver), node, inside);
    return rank;
  }
  inside.where = fmt::format("node {}: ", map.node());
  rounds.together("creating the communicators of the nodes", [&] {
    rank.local = std::make_unique<Communicator>(std::move(driver), node, inside);
  });
  if (is_nccl(network)) {
    links->engine = connect_nccl(*rank.local, map, rounds);
  } else {
    rounds.together("connecting the nodes", [&] {
      links->engine = std::make_unique<HostMessageTransport>(*rank.local, map, network);
    });
  }
  rank.links = std::move(links);
  return rank;
}

}  // namespace polypath
