// Which links, ports and memories of the node a copy occupies.
#pragma once

#include <vector>

#include "copy_engines.hpp"
#include "flow_network.hpp"
#include "topology/node.hpp"

namespace polypath::sim {

struct CopyRoute {
  FlowDemand demand;       ///< without its bytes
  std::vector<int> links;  ///< indices into Node::links
  bool is_bounced = false;
};

class Routing {
 public:
  explicit Routing(const Node& node);

  /// Capacities of all resources in the order that FlowDemand::resources counts them: links,
  /// ports, every memory for copies within it, then
  /// for kernels alone every GPU's memory and every port.
  [[nodiscard]] std::vector<Capacity> capacities() const;

  /// The route of a copy that `issuer`'s copy engine makes: its data go through that GPU. With
  /// `may_reach` false the engine has no access to one of the memories, and the driver carries the
  /// copy through host memory, as it does where there is no link.
  [[nodiscard]] CopyRoute route(int issuer, MemoryId from, MemoryId to, bool may_reach) const;
  /// The route of what threads of a kernel on GPU `device` load from or store to a memory that it
  /// reaches. Next to the links it takes what kernels reach of a switch's ports, and of a GPU's own
  /// memory.
  [[nodiscard]] CopyRoute kernel_route(int device, MemoryId from, MemoryId to) const;
  /// A copy or fill that crosses no link.
  [[nodiscard]] CopyRoute local_route(MemoryId from, MemoryId to) const;

 private:
  bool add_hop(CopyRoute& route, MemoryId from, MemoryId to) const;
  [[nodiscard]] CopyRoute bounced(MemoryId from, MemoryId to) const;
  [[nodiscard]] int local_resource(MemoryId memory) const;

  const Node& node_;
};

/// What the devices take as traffic of another program over one link. Failure INVALID_VALUE when
/// the node has no such link.
TrafficFlow traffic_flow(const Node& node, const BackgroundTraffic& traffic);

}  // namespace polypath::sim
