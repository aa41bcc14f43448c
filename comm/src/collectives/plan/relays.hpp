// GPUs that are no ranks, over whose links a collective may send (relays): which of a node's can be
// used, and what they add.
#pragma once

#include <string>
#include <vector>

#include "collectives/plan/request.hpp"

namespace polypath {

/// The GPUs of CollectiveRequest::relays that have links of their own from and to all ranks.
std::vector<int> usable_relays(const Node& node, const CollectiveRequest& request);
/// Why there are none; empty where there are.
std::string why_no_relays(const Node& node, const CollectiveRequest& request);

/// What a relay adds between two ranks, GB/s: a link of a rank with it carries what that rank
/// exchanges with all others, one between ranks only theirs.
double relay_rate(const Node& node, const CollectiveRequest& request, int relay);
/// How many times the rate of the links between the ranks all relays make of it.
double relay_gain(const Node& node, const CollectiveRequest& request);

/// What a relay carries of a message.
struct RelayShare {
  int gpu = 0;       ///< the relay
  double gbps = 0;   ///< relay_rate()
  double share = 0;  ///< of the message
};

}  // namespace polypath
