// How long the algorithms take that run by one kernel on each rank, and how their kernels are best
// launched.
//
//   cells   T = kernel_start + stages * flag + max(wire, memory) * 4 / 3, for the flags
//   lines   T = kernel_start + stages * (flag + turn) + max(wire, memory) * 16 / 15
//   flat    T = kernel_start + stages * (fence + flag) + max(wire, memory)
//
//   relayed as flat, with stages * (fence + 2 flag) and a turn: links carry their channels' shares
//           (channel_ways.h)
//
// One stage: each rank gets all from where it is; two: slices to their owners, and from them. The
// operations by parts have one; of the others the better number is taken.
//
// Without peer access ranks store into host memory next to the GPU that takes: each byte goes down
// the sender's link and up the receiver's, and a flag is polled over PCI Express.
//
// The wire is the link or port that takes longest for what it carries, of an NVSwitch with the part
// of its rate that stores reach; no faster than the blocks of a GPU store. Fitted to a prototype on
// 4 x H200 (docs/collectives-planning.md).
#pragma once

#include <optional>

#include "collectives/plan/collective_plan.hpp"

namespace polypath {

/// What each link carries, bytes, by index into Node::links.
using LinkBytes = std::vector<double>;

/// The time until all links and ports are done.
struct Drain {
  double us = 0;
  double gbps = 0;  ///< of the slowest link or port
};
Drain drain(const Node& node, const LinkBytes& bytes, double switch_share);
/// The time of each link, then of each port.
std::vector<double> drains_us(const Node& node, const LinkBytes& bytes, double switch_share);

/// The first pair of ranks whose GPUs do not reach each other's memory. Empty: all do.
std::string why_no_peer_access(const Node& node, const CollectiveRequest& request);
/// Why kernels cannot run: a pair of GPUs without peer access, one of which has no link to the
/// host memory where kernels would meet. Empty when they can.
std::string why_no_kernels(const Node& node, const CollectiveRequest& request);
/// The most blocks of a kernel whose ranks meet in host memory: they fill a PCIe link, and each
/// takes pinned memory.
inline constexpr int kMaxHostBlocks = 32;

/// The longest piece (kernels/rank_roles.h) that the memory of lines holds, bytes: a slice of the
/// largest message that goes by lines.
std::uint64_t max_line_piece(int ranks);
/// Why lines cannot run even where they come whole on every path that was tried: a path that is not
/// tried, or a message that is too large for the memory of lines. Empty when they can.
std::string why_no_lines(const Node& node, const CollectiveRequest& request);
/// Whether the pieces of a call in this number of stages fit in the memory of lines.
bool lines_hold(const CollectiveRequest& request, int stages);

/// The idle GPUs over which kernels send: those of usable_relays(), and no more than they serve.
std::vector<int> relays_of_kernels(const Node& node, const CollectiveRequest& request);
/// How a message is shared out then.
std::vector<RelayShare> relay_shares(const Node& node, const CollectiveRequest& request,
                                     const KernelPlan& kernel);
/// Why kernels cannot send over idle GPUs; empty when they can.
std::string why_no_relayed_kernels(const Node& node, const CollectiveRequest& request,
                                   const KernelLimits& limits);

struct KernelCost {
  double us = 0;
  double start_us = 0;  ///< of that what its bytes do not take
  LinkBytes links;      ///< what it stores
  KernelPlan kernel;
  std::vector<CollectiveStage> stages;
};
/// why_no_kernels() must be empty.
KernelCost cells_cost(const Node& node, const CollectiveRequest& request,
                      const KernelLimits& limits);
/// why_no_lines() must be empty.
KernelCost lines_cost(const Node& node, const CollectiveRequest& request,
                      const KernelLimits& limits);
KernelCost flat_cost(const Node& node, const CollectiveRequest& request,
                     const KernelLimits& limits);
/// why_no_relayed_kernels() must be empty.
KernelCost relayed_cost(const Node& node, const CollectiveRequest& request,
                        const KernelLimits& limits);
/// The kernel of `algorithm`, one that runs by kernels, that is launched with these blocks, stages,
/// tiles and lag, as far as `limits` allows; of the last two 0 is what is best.
KernelCost kernel_cost(const Node& node, const CollectiveRequest& request, Algorithm algorithm,
                       const KernelPlan& requested, const KernelLimits& limits);
/// Lets a plan that runs by one kernel run by this one.
void run_by(const Node& node, CollectivePlan& plan, KernelCost cost);

}  // namespace polypath
