// Creation of a communicator across nodes: the communicator of this node's ranks, and what links
// them with their equals on other nodes. All ranks of all nodes succeed, or all throw.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "comm/network_transport.hpp"
#include "comm/node_map.hpp"
#include "polypath/comm.h"

namespace polypath {

/// How a rank is linked with other nodes.
struct NodeNetwork {
  NodeMap map;
  std::unique_ptr<NetworkTransport> engine;
};

struct MultiNodeRank {
  std::unique_ptr<Communicator> local;
  std::unique_ptr<NodeNetwork> links;  ///< null: all ranks are of one node; before `local` it ends
};

/// Stands for NCCL, by its address.
const polypath_network& nccl_network() noexcept;

/// Collective. `options` are of all ranks; `node_name` as NodeHello has it. Throws
/// CommunicatorError, on all ranks alike, and what the exchange throws.
MultiNodeRank create_across_nodes(std::shared_ptr<const CudaDriver> driver, const Node& node,
                                  const CommunicatorOptions& options,
                                  const polypath_network& network, const std::string& node_name);

}  // namespace polypath
