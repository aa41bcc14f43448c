// The plan of a collective: which algorithm, in which stages, over which links, how long, and why
// not another. A plain value; making one is a pure function of the node, the request and the
// options, the same on all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/collective_schedule.hpp"
#include "collectives/plan/relays.hpp"
#include "collectives/plan/request.hpp"
#include "collectives/plan/tuned_collective.hpp"

namespace polypath {

class CopyCostTable;

/// How the kernel of a rank is launched.
struct KernelPlan {
  int blocks = 0;                ///< all of a rank, which have to run at once
  std::uint64_t slot_bytes = 0;  ///< flat: of one slot of a channel, that is, of a tile
  int stages = 1;                ///< 1: all from where it is; 2: by an owner of each slice
  int lag = 0;                   ///< flat: steps from a tile's sending to its taking

  friend bool operator==(const KernelPlan&, const KernelPlan&) = default;
};

/// What a kernel may have at most; 0: any number. The blocks and the scratch of a communicator say
/// it.
struct KernelLimits {
  int blocks = 0;
  int channels = 0;                      ///< blocks of a kernel by channels
  std::uint64_t tile_bytes = 0;          ///< of channels
  std::uint64_t relayed_tile_bytes = 0;  ///< ... over idle GPUs
  int lag = 0;                           ///< of channels

  friend auto operator<=>(const KernelLimits&, const KernelLimits&) = default;
};

/// A stage of the algorithm, for people: "reduce-scatter: slices to their owners".
struct CollectiveStage {
  std::string name;
  std::string moves;               ///< what goes where
  std::vector<std::string> links;  ///< "gpu0>gpu1", each once
  double busiest_gbps = 0;         ///< of the link or port that takes longest, while it is busy
  double us = 0;  ///< the stage's bytes alone; stages overlap, so the sum may exceed the prediction
};

/// An algorithm that was weighed.
struct CollectiveCandidate {
  Algorithm algorithm = Algorithm::none;
  double us = 0;  ///< predicted; 0: cannot run here, or was not weighed
  double bus_gbps = 0;
  double limit_bus_gbps = 0;  ///< of any algorithm over the trees that this one is made of
  std::string reason;         ///< why it was left out; empty for the one that is taken
};

/// Scratch of a rank, and of each host memory, for mixed, which is for a part of a message.
inline constexpr std::uint64_t kMixedScratch = std::uint64_t{24} << 20;
inline constexpr std::uint64_t kMixedHost = std::uint64_t{48} << 20;
/// What all ranks take of each host memory, where all of a message goes through them.
inline constexpr std::uint64_t kCopyHost = std::uint64_t{64} << 20;

struct CollectiveOptions {
  std::optional<Algorithm> algorithm;  ///< this one, if it can run
  KernelLimits limits = {};
  std::uint64_t chunk_bytes = 0;                          ///< of what runs by copies; 0: the best
  int lanes = 0;                                          ///< of hierarchical; 0: the best
  std::uint64_t scratch_bytes = std::uint64_t{64} << 20;  ///< a rank, for what runs by copies
  std::uint64_t host_bytes = kCopyHost;  ///< of each host memory; 0: none is shared
  bool kernels = true;  ///< whether ranks may store to each other's scratch; false: copies alone
  /// Whether lines of 128 bytes come whole between all ranks, and there is memory for them: what a
  /// communicator finds out, and a plan without one expects of NVLink.
  bool lines = true;
  /// Whether kernels may send over idle GPUs: what a communicator finds out.
  bool relayed_kernels = true;
  bool copies = true;  ///< whether what runs by copies may be taken without being asked for
  /// Say why, for people: bounds, the ring, and the other candidates; the choice is the same. It
  /// takes milliseconds, so a caller that only runs the plan sets false.
  bool explain = true;
  bool compare = false;  ///< weigh every algorithm by its schedule, also those that cannot win
  /// Where the costs of what runs by copies are looked up, unless an algorithm is asked for: a
  /// table of this node and these GPUs, which must outlive the call. Null: they are computed.
  CopyCostTable* table = nullptr;
};

struct CollectivePlan {
  CollectiveRequest request;
  Algorithm algorithm = Algorithm::none;
  std::vector<std::vector<int>> islands;  ///< ranks; of hierarchical in the order of summation
  int lanes = 1;           ///< hierarchical: parts of the message, each with leaders of its own
  std::vector<int> ring;   ///< of ring, and where explained: ranks in the order of the hops
  std::string order;       ///< of summation: "r0, r1, r2, r3", or "((r0 + r1) + (r2 + r3))"; empty
                           ///< where nothing is summed
  bool rank_order = true;  ///< whether that is the sequential sum
  std::optional<KernelPlan> kernel;
  std::uint64_t host_count = 0;   ///< of mixed: the last elements, which go by copies
  std::uint64_t chunk_bytes = 0;  ///< of what runs by copies
  int chunks = 0;
  std::vector<RelayShare> relays = {};  ///< of what goes over idle GPUs
  std::vector<CollectiveStage> stages;
  double predicted_us = 0;
  double bus_gbps = 0;             ///< predicted
  double limit_bus_gbps = 0;       ///< packing of all trees, those through host memory included; or
                                   ///< what links carry with relays
  double link_limit_bus_gbps = 0;  ///< of trees over links between GPUs alone
  bool unproven = false;           ///< several nodes: not measured on such a machine
  std::string reason;              ///< why this algorithm
  std::vector<CollectiveCandidate> candidates;  ///< the one taken first
  /// With `compare`, where there are islands: the three stages of the paper (IEEE Micro 2021), one
  /// leader an island and eight chunks. Else 0.
  double published_us = 0;
  std::optional<TunedCollective> tuned = {};  ///< what it follows (tuned_plan.hpp)
};

/// Throws InvalidArgument for a request that is not valid on the node (request.hpp), and when
/// `options.algorithm` cannot run it.
CollectivePlan plan_collective(const Node& node, const CollectiveRequest& request,
                               const CollectiveOptions& options);

/// The steps of a plan whose algorithm does not run by kernels. Throws InvalidArgument for others.
CollectiveSchedule make_collective_schedule(const Node& node, const CollectivePlan& plan);

}  // namespace polypath
