// What is after the handles of comm.h.
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/kept.hpp"
#include "comm/communicator.hpp"
#include "comm/node_network.hpp"
#include "polypath/comm.h"

namespace polypath {
class Context;
}

struct polypath_symmetric {
  polypath::SymmetricMemory memory;
};

struct polypath_comm : polypath::Keepable<polypath_comm> {
  polypath::Context* context = nullptr;  ///< that it was created with
  /// The ranks of this node.
  std::unique_ptr<polypath::Communicator> communicator;
  std::unique_ptr<polypath::NodeNetwork> nodes;  ///< null: there is no other
  /// What layers above keep with it: destroyed before it; and whether that has work under way.
  std::shared_ptr<void> above;
  std::function<bool()> above_in_flight;
  /// The offload layer's memory for buffers that kernels do not reach. Destroyed before `above`.
  std::shared_ptr<void> staging;
  /// As given to create; 0: the collectives' own number.
  int max_blocks = 0;
  int reserved_sms = 0;
  bool retries_buffers = false;
  std::vector<std::unique_ptr<polypath_symmetric>> memories;  ///< that were not freed
  /// The process that made it. A child that got it by a fork has none of its threads, and the
  /// control segment is the parent's.
  const pid_t made_by = getpid();
};

namespace polypath {

/// What a communicator of one node has. Throws InvalidArgument for null, NotSupported for one of
/// several nodes.
Communicator& communicator_of(polypath_comm* comm);
/// That of this node's ranks. Throws InvalidArgument when it is null.
Communicator& local_of(polypath_comm* comm);

}  // namespace polypath
