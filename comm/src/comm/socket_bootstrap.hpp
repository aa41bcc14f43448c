// The exchange of processes that can reach each other by TCP: rank 0 listens, the others connect.
// For ranks that torchrun or any launcher started, which names rank 0's address in the environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "comm/host_all_gather.hpp"

namespace polypath {

struct Rendezvous {
  int rank = 0;
  int size = 1;
  std::string address;  ///< of rank 0: a name, or an IP address
  int port = 0;         ///< where rank 0 listens
  int listening =
      -1;           ///< rank 0: a socket that already listens there, which is taken over; -1: none
  std::string job;  ///< the same on all ranks: a rank with another job is refused
};

/// Where the ranks of this job meet, by RANK, WORLD_SIZE, MASTER_ADDR and the port `port`; for 0
/// MASTER_PORT + 1, because a store of the launcher listens at
/// MASTER_PORT. Throws InvalidArgument that names the variable which is missing or wrong.
Rendezvous rendezvous_from_environment(int port = 0);

/// The number that an environment variable holds. Throws InvalidArgument that names it.
int number_in_environment(const char* variable, int least, int most);

/// Connects all ranks: returns when all have come. Throws CommunicatorError, with the ranks that
/// did not come within `limit`. The exchange throws the same when a rank goes, or does not come to
/// it.
HostAllGather socket_exchange(const Rendezvous& rendezvous, std::chrono::milliseconds limit);

}  // namespace polypath
