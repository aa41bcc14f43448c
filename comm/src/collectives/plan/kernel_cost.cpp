#include "collectives/plan/kernel_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/units.hpp"
#include "collectives/channel_ways.h"
#include "collectives/plan/islands.hpp"
#include "collectives/plan/relays.hpp"
#include "topology/default_graph.hpp"

namespace polypath {
namespace {

/// A cell of 16 bytes holds 12 of data and a flag.
constexpr double kCellBytesAByte = 4.0 / 3;
/// The bytes of a message that a block sends by cells before another is worth its start.
/// (2 x H200, kernels_on_gpus: 32 blocks best at 64 KiB, 96 from 256 KiB on.)
constexpr std::uint64_t kCellBytesABlock = 2 * kKiB;
constexpr int kMaxCellBlocks = 96;

// Lines, as kernels_on_gpus prints their times (4 x H200).
/// A line of 128 bytes holds 120 of data and a flag.
constexpr double kLineBytesAByte = 16.0 / 15;
/// The largest message, of a rank's larger buffer, for which there is memory.
constexpr std::uint64_t kMaxLineBytes = 16 * kMiB;
/// What a stage takes next to one of cells. It is 0.2 to 0.4 us up to 32 KiB, and from 64 KiB on
/// lines end as early or earlier (2 and 4 x H200); small messages are left to cells in any case.
constexpr double kLineTurnUs = 0.05;
/// As kCellBytesABlock and kMaxCellBlocks: a warp moves 960 bytes at once, so 16 warps have one row
/// each of 15 KiB. 32 blocks or more are within 1 % of each other up to 1 MiB, and 96 or more
/// above.
constexpr std::uint64_t kLineBytesABlock = 4 * kKiB;
constexpr int kMaxLineBlocks = 128;
/// From this number on more blocks gain nothing. Where fewer are allowed than a kernel asks for,
/// each byte of the buffer costs a part of a block's time, next to that of the wire. The rates of a
/// block are fitted to 2 x H200, us by 112, 64, 32, 16 blocks: allreduce of 16 MiB in two stages by
/// lines 58.5, 66.4, 84.6, 111; of 1 MiB by cells 9.0, 10.4, 11.4, 14.9.
constexpr int kManyBlocks = 112;
constexpr double kCellBlockGbps = 17;
constexpr double kLineBlockGbps = 21;

/// From this size on, as many blocks as there may be keep more stores in flight (2 x H200: 96 best
/// at 4 MiB, 128 from 16 MiB on).
constexpr std::uint64_t kManyBlocksFrom = 2 * kMiB;
constexpr int kMaxFlatBlocks = 128;
/// Where two ranks could do with one stage, two are faster from here on (2 x H200: 63 us against 70
/// at 16 MiB, 204 against 218 at 64 MiB).
constexpr std::uint64_t kTwoStagesFrom = 8 * kMiB;
/// A tile: a block's part of a slice, up to what keeps a ring of them small. With two stages the
/// largest is what half of the 14 warps that work have in flight (2 x H200, allreduce of 64 MiB by
/// 8 and 16 blocks: 577 and 301 us, with 32 KiB 667 and 346; all_gather: 448 and 232, 397 and
/// 207).
constexpr std::uint64_t kMinSlot = 4 * kKiB;
constexpr std::uint64_t max_slot(int stages) { return (stages == 2 ? 28 : 32) * kKiB; }

/// A step of a channel: what it takes at least, with one stage and for each further one, and what
/// a block sends at most (2 x H200, 64 MiB: by 8 blocks a step of tiles of 8 and 16 KiB takes 1.6
/// and 1.9 us in an all_gather, of 8 KiB 2.3 in an allreduce of two stages; by 8 and 16 blocks and
/// larger tiles the first sends 10.6 GB/s a block, a reduce_scatter 8.6, and an allreduce 14.5).
struct Steps {
  double us;
  double stage_us;
  double block_gbps;
  double stage_gbps;
  double exponent;
};
/// Either the blocks or the links are the limit, but for numbers in between: there both count (the
/// times above were 0.8 to 1.1 of those predicted, from 4 MiB on).
constexpr Steps kSteps{1.8, 0.7, 10.5, 4, 4};
/// Over relays each size of tiles is weighed. Larger ones need fewer blocks, but a channel begins
/// and ends with a tile that is on one hop alone. A tile waits for two links, and for its step, so
/// both times always count (the same two GPUs, tiles over the memory of both: steps of 2.2 and 3.5
/// us, 9.4 to 10.7 GB/s a block).
constexpr Steps kRelayedSteps{2.2, 1.2, 9.5, 0, 2};
constexpr std::uint64_t kRelayedSlots[] = {8 * kKiB, 16 * kKiB, 28 * kKiB};

/// With one step more than kMinLag few blocks have enough under way to keep links busy. Many only
/// have more steps (2 x H200, 64 MiB in tiles of 32 KiB, lags 2 and 3: all_gather by 16 blocks 254
/// and 207 us, by 48 128 and 119, by 64 114 and 118; reduce_scatter by 48 blocks 125 and 121, by 64
/// 114 and 126).
constexpr int kLongLag = kMinLag + 1;
constexpr std::uint64_t kFewBytesUnderWay = 7 * kMiB / 2;
/// Links of all ways are taken for alike.
constexpr double kUnlikeLinks = 0.15;

/// What a stage of channels takes next to its bytes, its fence and its flag: blocks meet, and a
/// tile waits for its turn (2 x H200: a call of one stage takes 12.0 us, of two 15.6, by cells
/// 5.0).
constexpr double kTurnUs = 5;

/// What a stage takes next to its bytes where ranks meet in host memory: stores and polls cross
/// PCI Express (2 x H200: an allreduce by cells in one stage takes 7.2 us for 4 KiB).
constexpr double kHostHopUs = 5;
/// What a stage of channels takes more: a fence, and turns (2 x H200: an allreduce of 2 MiB in two
/// stages takes 93 us).
constexpr double kHostTurnUs = 14;
/// Cells and rings in host memory are so small (Collectives::fit_host_memory) that their bytes stay
/// in the CPU's cache: what host memory carries is no limit. Of a link, stores and loads of kernels
/// reach this share (4 x H200: 37 to 40 of 55 GB/s each way, 150 in all, where memory carries 127).
constexpr double kHostCacheShare = 0.7;

MemoryId near_host(const Node& node, MemoryId gpu) {
  return MemoryId::host(node.gpus[static_cast<std::size_t>(gpu.index)].numa);
}

ChannelWays ways_of(const CollectiveRequest& request, const std::vector<int>& relays) {
  return {static_cast<std::uint32_t>(request.ranks()), static_cast<std::uint32_t>(relays.size())};
}

/// GPUs over which a part of a message goes, and the part of each.
struct Relaying {
  std::vector<int> gpus;
  double part = 0;
};

/// The longest piece (kernels/rank_roles.h), about.
std::uint64_t piece_bytes(const CollectiveRequest& request, const KernelPlan& kernel) {
  const bool is_sliced = request.by_parts() || kernel.stages == 2;
  return request.bytes() / static_cast<std::uint64_t>(is_sliced ? request.ranks() : 1);
}

/// How a call by these channels goes.
Relaying relaying_of(const CollectiveRequest& request, const KernelPlan& kernel,
                     std::vector<int> gpus) {
  const ChannelWays ways = ways_of(request, gpus);
  const bool has_root = request.op == CollectiveOp::broadcast || request.op == CollectiveOp::reduce;
  const bool has_owners = !has_root || request.ranks() > 2;  // next to the root
  const auto channels = static_cast<std::uint32_t>(kernel.blocks);
  const WayShares shares =
      ways.shares(channel_granules(piece_bytes(request, kernel)), channels,
                  static_cast<std::uint32_t>(kernel.slot_bytes / kChannelGranule),
                  kernel.stages == 2 && has_owners ? 2 : 1);
  return {std::move(gpus), ways.relay_part(shares, channels)};
}

/// How many bytes each rank sends to each other one, in one stage.
class Traffic {
 public:
  Traffic(const Node& node, const CollectiveRequest& request, Relaying relays)
      : node_(node),
        request_(request),
        relays_(std::move(relays)),
        by_host_(!why_no_peer_access(node, request).empty()),
        links_(node.links.size(), 0) {
    const auto ranks = request.gpus.size();
    out_.assign(ranks, 0);
    in_.assign(ranks, 0);
  }

  void send(int from, int to, double bytes) {
    const auto gpu = [&](int rank) {
      return MemoryId::gpu(request_.gpus[static_cast<std::size_t>(rank)]);
    };
    const auto add = [&](MemoryId begin, MemoryId end, double part) {
      links_[static_cast<std::size_t>(node_.find_link(begin, end).value())] += part;
    };
    if (by_host_) {
      const MemoryId host = near_host(node_, gpu(to));
      add(gpu(from), host, bytes);
      add(host, gpu(to), bytes);
    } else {
      const double part = bytes * relays_.part;
      add(gpu(from), gpu(to), bytes - part * static_cast<double>(relays_.gpus.size()));
      for (const int relay : relays_.gpus) {
        add(gpu(from), MemoryId::gpu(relay), part);
        add(MemoryId::gpu(relay), gpu(to), part);
      }
    }
    out_[static_cast<std::size_t>(from)] += bytes;
    in_[static_cast<std::size_t>(to)] += bytes;
  }

  void add(const Traffic& other) {
    for (std::size_t i = 0; i < links_.size(); ++i) links_[i] += other.links_[i];
    for (std::size_t i = 0; i < out_.size(); ++i) {
      out_[i] += other.out_[i];
      in_[i] += other.in_[i];
    }
  }

  [[nodiscard]] const LinkBytes& links() const { return links_; }
  [[nodiscard]] double max_out() const { return *std::ranges::max_element(out_); }
  [[nodiscard]] double max_in() const { return *std::ranges::max_element(in_); }

  [[nodiscard]] CollectiveStage stage(std::string name, std::string moves,
                                      const Drain& busy) const {
    CollectiveStage stage{std::move(name), std::move(moves), {}, 0, 0};
    for (std::size_t i = 0; i < links_.size(); ++i)
      if (links_[i] > 0)
        stage.links.push_back(
            fmt::format("{}>{}", to_string(node_.links[i].from), to_string(node_.links[i].to)));
    stage.busiest_gbps = busy.gbps;
    stage.us = busy.us;
    return stage;
  }

 private:
  const Node& node_;
  const CollectiveRequest& request_;
  Relaying relays_;
  bool by_host_;
  LinkBytes links_;
  std::vector<double> out_;
  std::vector<double> in_;
};

/// Slices to their owners (`to_owners`), or from them. Of a rooted operation the others are owners,
/// and the root is the other end of one stage (`rooted`): broadcast deals slices out, reduce
/// collects them.
Traffic slices(const Node& node, const CollectiveRequest& request, const Relaying& relays,
               bool to_owners, bool rooted) {
  Traffic traffic(node, request, relays);
  const bool is_broadcast = request.op == CollectiveOp::broadcast;
  const bool has_root = is_broadcast || request.op == CollectiveOp::reduce;
  const double slice = static_cast<double>(request.bytes()) /
                       static_cast<double>(request.ranks() - (has_root ? 1 : 0));
  for (int owner = 0; owner < request.ranks(); ++owner) {
    if (has_root && owner == request.root) continue;
    for (int rank = 0; rank < request.ranks(); ++rank) {
      if (rank == owner) continue;
      if (rooted && rank != request.root) continue;
      // The root has what it dealt out.
      if (!rooted && is_broadcast && rank == request.root) continue;
      to_owners ? traffic.send(rank, owner, slice) : traffic.send(owner, rank, slice);
    }
  }
  return traffic;
}

struct NamedTraffic {
  std::string name;
  std::string moves;
  Traffic traffic;
};

/// In one stage each rank gets everything from where it is.
std::vector<NamedTraffic> pushed(const Node& node, const CollectiveRequest& request,
                                 const Relaying& relays) {
  Traffic traffic(node, request, relays);
  const auto bytes = static_cast<double>(request.bytes());
  for (int from = 0; from < request.ranks(); ++from)
    for (int to = 0; to < request.ranks(); ++to) {
      if (from == to) continue;
      if (request.op == CollectiveOp::broadcast && from != request.root) continue;
      if (request.op == CollectiveOp::reduce && to != request.root) continue;
      traffic.send(from, to, bytes);
    }
  return {{"push", request.reduces() ? "all to all, who sum in rank order" : "all to all",
           std::move(traffic)}};
}

/// Operations by parts have one stage, the others one or two.
std::vector<NamedTraffic> stages_of(const Node& node, const CollectiveRequest& request,
                                    const Relaying& relays, int stages) {
  if (stages == 1 && !request.by_parts()) return pushed(node, request, relays);
  const auto dealt = [&](bool to_owners, bool rooted) {
    return slices(node, request, relays, to_owners, rooted);
  };
  const NamedTraffic scatter_sums{"reduce-scatter", "slices to their owners, who sum in rank order",
                                  dealt(true, false)};
  const NamedTraffic gather{"all-gather", "owners' slices to all", dealt(false, false)};
  switch (request.op) {
    case CollectiveOp::allreduce: return {scatter_sums, gather};
    case CollectiveOp::reduce_scatter: return {scatter_sums};
    case CollectiveOp::all_gather: return {gather};
    case CollectiveOp::broadcast:
      return {{"scatter", "the root's slices to their owners", dealt(true, true)}, gather};
    case CollectiveOp::reduce:
      return {scatter_sums, {"gather", "owners' sums to the root", dealt(false, true)}};
    case CollectiveOp::all_to_all:
      return {{"exchange", "each rank's part to each", dealt(true, false)}};
  }
  return {};
}

/// Time of the bytes, of which each is `factor` on the wire and in scratch, unless memory or too
/// few blocks are slower than the wire.
double bytes_us(const Node& node, const Traffic& traffic, double wire_us, double own_bytes,
                int blocks, double factor) {
  const double stored =
      traffic.max_out() / (static_cast<double>(blocks) * node.costs.block_gbps * kBytesPerGbpsUs);
  // What is sent is read once; what arrives is written, read, and its result written.
  const double memory = (traffic.max_out() + 3 * traffic.max_in() + own_bytes) /
                        (node.costs.memory_gbps * kBytesPerGbpsUs);
  return factor * std::max({wire_us, stored, memory});
}

/// Time of a call by channels, in which a rank sends `bytes`, by its time on the wire.
double in_steps_us(double wire_us, double bytes, const KernelPlan& kernel, const Steps& steps) {
  const double step_us = steps.us + steps.stage_us * (kernel.stages - 1);
  const double tiles = static_cast<double>(kernel.slot_bytes) * kernel.stages;
  const double block_gbps = steps.block_gbps + steps.stage_gbps * (kernel.stages - 1);
  const double gbps = std::min(block_gbps, tiles / (step_us * kBytesPerGbpsUs));
  // The first step is a part of what a stage takes next to its bytes.
  const double blocks_us =
      std::max(0.0, bytes / (kernel.blocks * gbps * kBytesPerGbpsUs) - step_us);
  return std::pow(std::pow(wire_us, steps.exponent) + std::pow(blocks_us, steps.exponent),
                  1 / steps.exponent);
}

/// `limit` 0: none.
template <typename Number>
Number at_most(Number number, Number limit) {
  return limit > 0 ? std::min(number, limit) : number;
}

/// A tile, which a profile may give any length.
std::uint64_t whole_granules(std::uint64_t bytes) {
  return std::max<std::uint64_t>(1, bytes / kChannelGranule) * kChannelGranule;
}

int max_blocks(Algorithm algorithm, const KernelLimits& limits) {
  return runs_by_channels(algorithm) && limits.channels > 0
             ? at_most(limits.channels, limits.blocks)
             : limits.blocks;
}

}  // namespace

namespace {

/// Calls `take` with bytes and GB/s of each link in use, then of each port in use.
template <typename Take>
void for_each_load(const Node& node, const LinkBytes& bytes, double switch_share,
                   const Take& take) {
  std::vector<double> port_bytes(node.ports.size(), 0);
  std::vector<double> port_share(node.ports.size(), 1);
  for (std::size_t i = 0; i < node.links.size(); ++i) {
    const Link& link = node.links[i];
    if (bytes[i] <= 0) continue;
    const double share = link.type == LinkType::nvswitch ? switch_share : 1;
    for (const int port : link.ports) {
      port_bytes[static_cast<std::size_t>(port)] += bytes[i];
      double& least = port_share[static_cast<std::size_t>(port)];
      least = std::min(least, share);
    }
    take(i, bytes[i], link.gbps * share);
  }
  for (std::size_t i = 0; i < node.ports.size(); ++i)
    take(node.links.size() + i, port_bytes[i], node.ports[i].gbps * port_share[i]);
}

}  // namespace

Drain drain(const Node& node, const LinkBytes& bytes, double switch_share) {
  Drain slowest;
  for_each_load(node, bytes, switch_share, [&](std::size_t, double load, double gbps) {
    const double us = load / (gbps * kBytesPerGbpsUs);
    if (us > slowest.us) slowest = {us, gbps};
  });
  return slowest;
}

std::vector<double> drains_us(const Node& node, const LinkBytes& bytes, double switch_share) {
  std::vector<double> us(node.links.size() + node.ports.size(), 0);
  for_each_load(node, bytes, switch_share, [&](std::size_t index, double load, double gbps) {
    us[index] = load / (gbps * kBytesPerGbpsUs);
  });
  return us;
}

std::uint64_t max_line_piece(int ranks) {
  constexpr std::uint64_t kGranule = 768;  // of slices (kernels/rank_roles.h)
  const auto parts = static_cast<std::uint64_t>(std::max(ranks, 1));
  return ((kMaxLineBytes + parts - 1) / parts + kGranule - 1) / kGranule * kGranule;
}

bool lines_hold(const CollectiveRequest& request, int stages) {
  const bool rooted = request.op == CollectiveOp::broadcast || request.op == CollectiveOp::reduce;
  int parts = 1;
  if (request.by_parts() || (stages == 2 && !rooted))
    parts = request.ranks();
  else if (stages == 2)
    parts = std::max(1, request.ranks() - 1);
  const auto divisor = static_cast<std::uint64_t>(parts);
  return (request.bytes() + divisor - 1) / divisor <= max_line_piece(request.ranks());
}

std::string why_no_lines(const Node& node, const CollectiveRequest& request) {
  for (const int from : request.gpus)
    for (const int to : request.gpus) {
      if (from == to) continue;
      const auto index = node.find_link(MemoryId::gpu(from), MemoryId::gpu(to));
      const LinkType type =
          index ? node.links[static_cast<std::size_t>(*index)].type : LinkType::bounce;
      if (type != LinkType::nvlink && type != LinkType::nvswitch)
        return fmt::format("only over NVLink, which gpu{} and gpu{} lack", from, to);
    }
  if (!lines_hold(request, 1) && !lines_hold(request, 2))
    return "more than the memory of lines holds";
  return {};
}

std::string why_no_peer_access(const Node& node, const CollectiveRequest& request) {
  for (const int from : request.gpus)
    for (const int to : request.gpus)
      if (from != to && peer_gbps(node, from, to) == 0)
        return fmt::format("gpu{} does not reach gpu{}'s memory", from, to);
  return {};
}

std::string why_no_kernels(const Node& node, const CollectiveRequest& request) {
  std::string reason = why_no_peer_access(node, request);
  if (reason.empty()) return reason;
  for (const int from : request.gpus)
    for (const int to : request.gpus) {
      const MemoryId host = near_host(node, MemoryId::gpu(to));
      if (!node.find_link(MemoryId::gpu(from), host) || !node.find_link(host, MemoryId::gpu(to)))
        return fmt::format("{}, and {} is no way between them", reason, to_string(host));
    }
  return {};
}

namespace {

/// As drain(), of what goes through cells and rings in host memory.
Drain drain_by_host_cache(const Node& node, const LinkBytes& bytes) {
  Drain slowest;
  for_each_load(node, bytes, 1, [&](std::size_t index, double load, double gbps) {
    const bool is_port = index >= node.links.size();
    if (is_port && is_memory_port(node.ports[index - node.links.size()])) return;
    const double reached = is_port ? gbps : gbps * kHostCacheShare;
    const double us = load / (reached * kBytesPerGbpsUs);
    if (us > slowest.us) slowest = {us, reached};
  });
  return slowest;
}

/// How a kernel's bytes go.
struct Wire {
  double hop_us = 0;  ///< of each stage next to its bytes
  double factor = 1;  ///< bytes on the wire, for each one
  bool by_host_cache = false;
  Relaying relays = {};
  const Steps* steps = nullptr;  ///< of channels
};

/// Fills in stages and time of a kernel that is launched so.
KernelCost cost_of(const Node& node, const CollectiveRequest& request, KernelPlan kernel,
                   const Wire& how) {
  const auto wire = [&](const Traffic& traffic) {
    return how.by_host_cache ? drain_by_host_cache(node, traffic.links())
                             : drain(node, traffic.links(), node.costs.switch_share);
  };
  KernelCost cost;
  cost.kernel = kernel;
  Traffic all(node, request, how.relays);
  for (const NamedTraffic& stage : stages_of(node, request, how.relays, kernel.stages)) {
    all.add(stage.traffic);
    cost.stages.push_back(stage.traffic.stage(stage.name, stage.moves, wire(stage.traffic)));
    cost.stages.back().us *= how.factor;
  }
  cost.links = all.links();
  cost.start_us = node.costs.kernel_start_us + kernel.stages * how.hop_us;
  double wire_us = wire(all).us;
  if (how.steps != nullptr) wire_us = in_steps_us(wire_us, all.max_out(), kernel, *how.steps);
  cost.us = cost.start_us + bytes_us(node, all, wire_us, static_cast<double>(request.bytes()),
                                     kernel.blocks, how.factor);
  return cost;
}

/// Blocks that fill the ranks' own links in one direction.
int filling_blocks(const Node& node, const CollectiveRequest& request, int stages) {
  Traffic all(node, request, {});
  for (const NamedTraffic& stage : stages_of(node, request, {}, stages)) all.add(stage.traffic);
  const double wire = drain(node, all.links(), node.costs.switch_share).us;
  const double out_gbps = wire > 0 ? all.max_out() / (wire * kBytesPerGbpsUs) : 0;
  return static_cast<int>(std::bit_ceil(
      static_cast<unsigned>(std::max(1.0, std::ceil(out_gbps / node.costs.block_gbps)))));
}

template <typename CostOfStages>
KernelCost best_stages(const CollectiveRequest& request, const CostOfStages& cost) {
  KernelCost best = cost(1);
  if (request.by_parts()) return best;
  KernelCost two = cost(2);
  const bool gains = request.op == CollectiveOp::allreduce && request.bytes() >= kTwoStagesFrom;
  return gains || two.us < best.us ? two : best;
}

/// The longest piece that a channel carries, bytes.
std::uint64_t channel_bytes(const CollectiveRequest& request, const KernelPlan& kernel) {
  return piece_bytes(request, kernel) / static_cast<std::uint64_t>(kernel.blocks);
}

int lag_of(const CollectiveRequest& request, const KernelPlan& kernel) {
  const std::uint64_t under_way = kernel.slot_bytes * static_cast<std::uint64_t>(kernel.blocks) *
                                  static_cast<std::uint64_t>(kMinLag * (request.ranks() - 1));
  const bool has_one_tile = channel_bytes(request, kernel) <= kernel.slot_bytes;
  return has_one_tile || under_way >= kFewBytesUnderWay ? kMinLag : kLongLag;
}

/// A call by channels, some of them over relays, with the tiles that take the least time where
/// `kernel` names none.
///
/// Over relays a tile is loaded from another GPU, which takes a flag once more, in a call a turn
/// more, and its time on a link: with a step more between its flag and its load other tiles keep
/// the link busy meanwhile (simulated mesh, 256 MiB: 997 us, with 2 steps 1040, with 5 1018).
KernelCost best_over_relays(const Node& node, const CollectiveRequest& request, KernelPlan kernel,
                            const KernelLimits& limits) {
  const std::vector<int> relays = relays_of_kernels(node, request);
  const auto period = static_cast<int>(ways_of(request, relays).period());
  kernel.blocks = std::max(1, kernel.blocks / period) * period;
  kernel.lag = std::max(kMinLag, at_most(kernel.lag == 0 ? kLongLag : kernel.lag, limits.lag));
  const auto cost_with = [&](std::uint64_t slot) {
    kernel.slot_bytes = whole_granules(at_most(slot, limits.relayed_tile_bytes));
    return cost_of(
        node, request, kernel,
        {.hop_us = node.costs.fence_us + 2 * node.costs.flag_us + kTurnUs + kTurnUs / kernel.stages,
         .relays = relaying_of(request, kernel, relays),
         .steps = &kRelayedSteps});
  };
  if (kernel.slot_bytes > 0) return cost_with(kernel.slot_bytes);
  KernelCost best;
  for (const std::uint64_t slot : kRelayedSlots)
    if (KernelCost cost = cost_with(slot); best.us == 0 || cost.us < best.us)
      best = std::move(cost);
  return best;
}

}  // namespace

KernelCost kernel_cost(const Node& node, const CollectiveRequest& request, Algorithm algorithm,
                       const KernelPlan& requested, const KernelLimits& limits) {
  const int blocks = at_most(requested.blocks, max_blocks(algorithm, limits));
  KernelPlan kernel{.blocks = std::max(1, blocks),
                    .stages = request.by_parts() ? 1 : requested.stages};
  const bool by_host = !why_no_peer_access(node, request).empty();
  if (by_host) kernel.blocks = std::min(kernel.blocks, kMaxHostBlocks);
  if (algorithm == Algorithm::relayed) {
    kernel.slot_bytes = requested.slot_bytes;
    kernel.lag = requested.lag;
    return best_over_relays(node, request, kernel, limits);
  }
  // `gbps`: of a block.
  const auto with_few_blocks = [&](KernelCost cost, double gbps) {
    const int enough = std::min(requested.blocks, kManyBlocks);
    if (kernel.blocks < enough && !by_host)
      cost.us += transfer_us(request.bytes(), gbps) * (1.0 / kernel.blocks - 1.0 / enough);
    return cost;
  };
  if (algorithm == Algorithm::cells)
    return with_few_blocks(
        cost_of(node, request, kernel,
                {by_host ? kHostHopUs : node.costs.flag_us, kCellBytesAByte, by_host}),
        kCellBlockGbps);
  if (algorithm == Algorithm::lines)
    return with_few_blocks(
        cost_of(node, request, kernel, {node.costs.flag_us + kLineTurnUs, kLineBytesAByte}),
        kLineBlockGbps);
  const std::uint64_t part = request.bytes() / static_cast<std::uint64_t>(request.ranks()) /
                             static_cast<std::uint64_t>(kernel.blocks);
  kernel.slot_bytes = requested.slot_bytes;
  if (kernel.slot_bytes == 0)
    kernel.slot_bytes = std::clamp(std::bit_ceil(std::max<std::uint64_t>(part, 1)), kMinSlot,
                                   max_slot(kernel.stages));
  kernel.slot_bytes = whole_granules(at_most(kernel.slot_bytes, limits.tile_bytes));
  kernel.lag = requested.lag;
  if (kernel.lag == 0) kernel.lag = by_host ? kMinLag : lag_of(request, kernel);
  kernel.lag = std::max(kMinLag, at_most(kernel.lag, limits.lag));
  const double hop_us =
      by_host ? kHostHopUs + kHostTurnUs : node.costs.fence_us + node.costs.flag_us + kTurnUs;
  Wire how{.hop_us = hop_us, .by_host_cache = by_host};
  if (!by_host) how.steps = &kSteps;
  return cost_of(node, request, kernel, how);
}

void run_by(const Node& node, CollectivePlan& plan, KernelCost cost) {
  plan.kernel = cost.kernel;
  plan.stages = std::move(cost.stages);
  plan.predicted_us = cost.us;
  plan.bus_gbps = rate_gbps(plan.request.bytes(), cost.us) * plan.request.bus_factor();
  if (plan.algorithm == Algorithm::relayed)
    plan.relays = relay_shares(node, plan.request, cost.kernel);
}

KernelCost cells_cost(const Node& node, const CollectiveRequest& request,
                      const KernelLimits& limits) {
  const auto blocks = static_cast<int>(std::clamp<std::uint64_t>(
      (request.bytes() + kCellBytesABlock - 1) / kCellBytesABlock, 1, kMaxCellBlocks));
  return best_stages(request, [&](int stages) {
    return kernel_cost(node, request, Algorithm::cells, {blocks, 0, stages}, limits);
  });
}

KernelCost lines_cost(const Node& node, const CollectiveRequest& request,
                      const KernelLimits& limits) {
  const auto blocks = static_cast<int>(std::clamp<std::uint64_t>(
      (request.bytes() + kLineBytesABlock - 1) / kLineBytesABlock, 1, kMaxLineBlocks));
  const auto cost = [&](int stages) {
    return kernel_cost(node, request, Algorithm::lines, {blocks, 0, stages}, limits);
  };
  if (!request.by_parts() && !lines_hold(request, 1)) return cost(2);
  if (!request.by_parts() && !lines_hold(request, 2)) return cost(1);
  return best_stages(request, cost);
}

std::vector<int> relays_of_kernels(const Node& node, const CollectiveRequest& request) {
  std::vector<int> relays = usable_relays(node, request);
  if (relays.size() > kMaxRelays) relays.resize(kMaxRelays);
  return relays;
}

std::vector<RelayShare> relay_shares(const Node& node, const CollectiveRequest& request,
                                     const KernelPlan& kernel) {
  const Relaying relays = relaying_of(request, kernel, relays_of_kernels(node, request));
  std::vector<RelayShare> shares;
  for (const int gpu : relays.gpus)
    shares.push_back({gpu, relay_rate(node, request, gpu), relays.part});
  return shares;
}

std::string why_no_relayed_kernels(const Node& node, const CollectiveRequest& request,
                                   const KernelLimits& limits) {
  std::string reason = why_no_peer_access(node, request);
  if (reason.empty()) reason = why_no_relays(node, request);
  if (!reason.empty()) return reason;
  const auto period = static_cast<int>(ways_of(request, relays_of_kernels(node, request)).period());
  if (const int blocks = max_blocks(Algorithm::relayed, limits); blocks > 0 && blocks < period)
    return fmt::format("{} blocks are allowed, and there are {} ways", blocks, period);
  for (const int relay : relays_of_kernels(node, request)) {
    const double relay_gbps = relay_rate(node, request, relay) * (request.ranks() - 1);
    for (const int from : request.gpus)
      for (const int to : request.gpus)
        if (from != to && std::abs(relay_gbps / peer_gbps(node, from, to) - 1) > kUnlikeLinks)
          return fmt::format("links of gpu{} are unlike those between the ranks", relay);
  }
  return {};
}

KernelCost relayed_cost(const Node& node, const CollectiveRequest& request,
                        const KernelLimits& limits) {
  return best_stages(request, [&](int stages) {
    return kernel_cost(node, request, Algorithm::relayed, {kMaxFlatBlocks, 0, stages}, limits);
  });
}

KernelCost flat_cost(const Node& node, const CollectiveRequest& request,
                     const KernelLimits& limits) {
  return best_stages(request, [&](int stages) {
    // Tiles in host memory are small.
    const bool has_many =
        request.bytes() >= kManyBlocksFrom || !why_no_peer_access(node, request).empty();
    const int blocks = has_many ? kMaxFlatBlocks : filling_blocks(node, request, stages) * 2;
    return kernel_cost(node, request, Algorithm::flat,
                       {std::min(blocks, kMaxFlatBlocks), 0, stages}, limits);
  });
}

}  // namespace polypath
