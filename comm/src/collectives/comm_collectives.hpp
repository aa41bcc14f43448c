// The collectives after a communicator's handle.
#pragma once

#include "collectives/collectives.hpp"
#include "collectives/comm_spread.hpp"
#include "collectives/multi_node_collectives.hpp"
#include "comm/comm_handle.hpp"

namespace polypath {

/// What is kept with a handle.
struct CommCollectives final : CommExtension {
  /// `options.host_links` are `links`.
  CommCollectives(Communicator& communicator, const CollectivesOptions& options,
                  std::unique_ptr<HostLinkLoad> links)
      : host_links(std::move(links)), inside(communicator, options) {}

  [[nodiscard]] bool in_flight() const override { return inside.in_flight(); }

  std::unique_ptr<HostLinkLoad> host_links;  ///< null: the load is not followed
  Collectives inside;
  std::unique_ptr<MultiNodeCollectives> across;  ///< null: all ranks are of one node
  std::unique_ptr<CommSpread> spread;            ///< null before the first one
};

/// Made by the first call, which is collective then. Throws InvalidArgument for null, and what the
/// constructors throw. `copies`: CollectivesOptions::copies, of that first call.
CommCollectives& collectives_of(polypath_comm* comm, bool copies = false);

/// From arguments of the C API. Throws InvalidArgument for a type or operator that is none.
CollectiveCall call_of(CollectiveOp op, const void* send, void* recv, std::size_t count,
                       polypath_data_type type, int operation, int root);
/// Issues the call on the stream. Throws InvalidArgument for null, and as Collectives::run().
void run_collective(polypath_comm* comm, const CollectiveCall& call, CUstream stream);
void run_collective(polypath_comm* comm, const NormCall& call, CUstream stream);

}  // namespace polypath
