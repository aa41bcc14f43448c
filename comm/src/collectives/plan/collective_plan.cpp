#include "collectives/plan/collective_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.hpp"
#include "base/units.hpp"
#include "collectives/plan/algorithm_cost.hpp"
#include "collectives/plan/collective_bounds.hpp"
#include "collectives/plan/copy_cost_table.hpp"
#include "collectives/plan/islands.hpp"
#include "collectives/plan/kernel_cost.hpp"
#include "collectives/plan/mixed_cost.hpp"
#include "collectives/plan/node_pipeline.hpp"
#include "collectives/plan/schedule_stages.hpp"
#include "collectives/plan/schedule_time.hpp"
#include "collectives/plan/schedules.hpp"

namespace polypath {
namespace {

/// Beyond this the scratch of cells is wasted: lines are faster before, or flat is as fast (4 x
/// H200, 4 MiB: 34.5 us, by flat 37.0).
constexpr std::uint64_t kMaxCellBytes = kMiB;
/// Two ranks send no byte more in one stage than in two (2 x H200: 22.7 us, by flat 29.3).
constexpr std::uint64_t kMaxTwoRankLLBytes = 4 * kMiB;
/// Chunks of what runs by copies.
constexpr std::uint64_t kMinChunk = 64 * kKiB;
constexpr std::uint64_t kMaxChunks = 64;
/// ... where memory asks for more; beyond that an algorithm is left out.
constexpr std::uint64_t kMaxChunksForMemory = 512;
/// With more ranks a chunk has many more steps.
constexpr std::uint64_t kMaxChunksOfGroup = 16;
constexpr int kMany = 4;
/// The paper's streams for large messages.
constexpr std::uint64_t kPublishedChunks = 8;
/// What runs by copies has to promise this much against kernels. Schedules of copies took 1.07 to
/// 1.1 times what is predicted on 2 x H200, a reduce_scatter up to 1.3 times. On 4 x H200, where
/// the CPU's calls are the limit, an allreduce took 1.5 times as long.
constexpr double kCopiesMustReach = 0.87;
/// What uses idle GPUs has to promise this much against kernels that do without.
constexpr double kRelayedMustReach = 0.9;
/// Through host memory, where kernels go as well.
constexpr double kHostTreesMustReach = 0.92;
/// Less where only a small part of a message runs so, over links that no switch shares out.
constexpr double kMixedMustReach = 0.97;

/// With one link type between all GPUs, costs by copies are worth knowing up to this part of what
/// kernels take: plans of other sizes are interpolated from them.
constexpr double kTabledMustReach = 1;

using Evaluation = AlgorithmCost;

class PlanMaker {
 public:
  PlanMaker(const Node& node, const CollectiveRequest& request, const CollectiveOptions& options)
      : node_(node), request_(request), options_(options), bounds_(node, request) {
    plan_.request = request;
    by_links_ = find_islands(node, request.gpus, /*by_socket=*/false);
    plan_.islands = by_links_.size() > 1 ? by_links_ : find_islands(node, request.gpus, true);
    if (options.explain || is_evaluated(Algorithm::ring)) plan_.ring = best_ring(node, request);
    if (request.ranks() > 1) {
      no_kernels_ = why_no_kernels(node, request);
      no_peers_ = why_no_peer_access(node, request);
    }
    if (no_kernels_.empty() && !options.kernels) no_kernels_ = "the settings allow copies alone";
  }

  AlgorithmCost cost(Algorithm algorithm) && {
    for_table_ = true;
    return weigh(algorithm);
  }

  CollectivePlan make() && {
    if (options_.explain) {
      plan_.limit_bus_gbps = bounds_.bus_gbps();
      plan_.link_limit_bus_gbps = bounds_.link_bus_gbps();
      if (request_.nodes == 1 && !usable_relays(node_, request_).empty())
        plan_.limit_bus_gbps =
            std::max(plan_.limit_bus_gbps, bounds_.bus_gbps(Algorithm::relayed, plan_.ring));
    }
    if (request_.bytes() == 0) {
      nothing("there is nothing to move");
      return std::move(plan_);
    }
    if (request_.ranks() == 1 && request_.nodes == 1) {
      nothing("one rank: nothing to do but to copy its input, unless it is in place");
      plan_.predicted_us =
          node_.costs.copy_start_us + transfer_us(2 * request_.bytes(), node_.costs.memory_gbps);
      return std::move(plan_);
    }
    if (request_.nodes > 1) {
      several_nodes();
      return std::move(plan_);
    }
    std::vector<Evaluation> all;
    for (const Algorithm algorithm : kAlgorithms)
      if (algorithm != Algorithm::none && counts(algorithm)) all.push_back(weigh(algorithm));
    take(all);
    if (uses_table() && options_.explain) time_schedule();
    if (options_.compare) weigh_published();
    return std::move(plan_);
  }

 private:
  /// Whether an algorithm is evaluated even if it cannot be taken.
  [[nodiscard]] bool is_evaluated(Algorithm algorithm) const {
    return options_.compare || options_.algorithm == algorithm;
  }

  /// Whether it could be taken, or must be shown.
  [[nodiscard]] bool counts(Algorithm algorithm) const {
    if (options_.explain || is_evaluated(algorithm)) return true;
    return !options_.algorithm && (options_.copies || runs_by_kernels(algorithm));
  }
  [[nodiscard]] bool uses_table() const {
    return options_.table != nullptr && !options_.algorithm && !options_.compare &&
           options_.chunk_bytes == 0 && options_.lanes == 0;
  }

  void nothing(std::string reason) {
    plan_.reason = std::move(reason);
    describe_order(Algorithm::none);
    plan_.candidates.push_back({});
  }

  void several_nodes() {
    const NodePipeline pipeline =
        plan_node_pipeline(node_, request_, options_, no_kernels_.empty());
    plan_.algorithm = pipeline.algorithm;
    plan_.kernel = pipeline.kernel;
    plan_.stages = pipeline.stages;
    plan_.chunks = pipeline.chunks;
    plan_.chunk_bytes = pipeline.chunk_bytes;
    plan_.predicted_us = pipeline.us;
    plan_.bus_gbps = bus_gbps(pipeline.us);
    plan_.unproven = true;
    plan_.rank_order = false;
    if (request_.needs_tree() && (!std::has_single_bit(static_cast<unsigned>(request_.ranks())) ||
                                  request_.nodes > kMaxRanksPerNode))
      throw InvalidArgument(
          fmt::format("sums as a tree take a power of 2 of ranks on each node, and up to {} nodes",
                      kMaxRanksPerNode));
    plan_.reason =
        "inside each node slices to their owners, between nodes an existing engine, chunk by chunk";
    std::vector<std::string> ranks;
    for (int rank = 0; rank < request_.ranks(); ++rank) ranks.push_back(fmt::format("r{}", rank));
    plan_.order = fmt::format("on each node {}; then the nodes, in the order of their first ranks",
                              fmt::join(ranks, ", "));
    if (request_.needs_tree())
      plan_.order = fmt::format("on each node {}; then {}", tree_text(0, request_.ranks(), "r"),
                                tree_text(0, request_.nodes, "node "));
    plan_.candidates.push_back(
        {plan_.algorithm, plan_.predicted_us, plan_.bus_gbps, plan_.limit_bus_gbps, ""});
  }

  [[nodiscard]] double bus_gbps(double us) const {
    return rate_gbps(request_.bytes(), us) * request_.bus_factor();
  }

  // ---- Weighing -------------------------------------------------------------------------------

  Evaluation weigh(Algorithm algorithm) {
    switch (algorithm) {
      case Algorithm::none: return {};
      case Algorithm::cells: return weigh_cells();
      case Algorithm::lines: return weigh_lines();
      case Algorithm::flat: return weigh_flat();
      case Algorithm::relayed: return weigh_relayed();
      case Algorithm::pairwise: return weigh_rotation();
      case Algorithm::host_trees: return weigh_host_trees();
      case Algorithm::mixed: return weigh_mixed();
      case Algorithm::hierarchical: return weigh_hierarchical();
      case Algorithm::ring: return weigh_ring();
    }
    return {};
  }

  static Evaluation of_kernel(Algorithm algorithm, KernelCost cost) {
    Evaluation weighed{algorithm, cost.us, cost.kernel, std::move(cost.stages), 0, 1, ""};
    return weighed;
  }

  Evaluation weigh_cells() const {
    if (!no_kernels_.empty()) return {Algorithm::cells, 0, {}, {}, 0, 1, no_kernels_};
    if (request_.bytes() > (request_.ranks() == 2 ? kMaxTwoRankLLBytes : kMaxCellBytes))
      return {Algorithm::cells, 0, {}, {}, 0, 1, "a flag in every cell: small messages only"};
    return of_kernel(Algorithm::cells, cells_cost(node_, request_, options_.limits));
  }

  Evaluation weigh_lines() const {
    std::string reason = no_kernels_;
    if (reason.empty()) reason = why_no_lines(node_, request_);
    if (reason.empty() && request_.needs_tree()) reason = "lines combine in rank order";
    if (reason.empty() && !options_.lines) reason = "lines do not come whole, or found no memory";
    if (!reason.empty()) return {Algorithm::lines, 0, {}, {}, 0, 1, reason};
    return of_kernel(Algorithm::lines, lines_cost(node_, request_, options_.limits));
  }

  Evaluation weigh_flat() const {
    if (!no_kernels_.empty()) return {Algorithm::flat, 0, {}, {}, 0, 1, no_kernels_};
    return of_kernel(Algorithm::flat, flat_cost(node_, request_, options_.limits));
  }

  Evaluation weigh_relayed() const {
    std::string reason = no_kernels_.empty()
                             ? why_no_relayed_kernels(node_, request_, options_.limits)
                             : no_kernels_;
    if (reason.empty() && !options_.relayed_kernels)
      reason = "the ranks share no memory of idle GPUs";
    if (!reason.empty()) return {Algorithm::relayed, 0, {}, {}, 0, 1, reason};
    return of_kernel(Algorithm::relayed, relayed_cost(node_, request_, options_.limits));
  }

  Evaluation weigh_rotation() const {
    Evaluation weighed{Algorithm::pairwise, 0, {}, {}, 0, 1, no_peers_};
    if (!weighed.reason.empty()) return weighed;
    if (no_kernels_.empty() && !lacks_blocks())
      weighed.reason = "as flat, but every chunk costs copies and events";
    by_schedule(weighed, [&](std::uint64_t chunk) {
      return flat_schedule(node_, request_, chunk, /*by_host=*/false);
    });
    return weighed;
  }

  /// Whether `flat` is slower for want of blocks by more than copies have to promise. Sums take
  /// blocks by copies as well.
  [[nodiscard]] bool lacks_blocks() const {
    if (options_.limits.blocks == 0 || request_.reduces()) return false;
    KernelLimits unlimited = options_.limits;
    unlimited.blocks = unlimited.channels = 0;
    return flat_cost(node_, request_, options_.limits).us * kCopiesMustReach >
           flat_cost(node_, request_, unlimited).us;
  }

  Evaluation weigh_host_trees() {
    Evaluation weighed{Algorithm::host_trees, 0, {}, {}, 0, 1, ""};
    if (options_.host_bytes == 0)
      weighed.reason = "ranks share no host memory";
    else if (no_kernels_.empty() && no_peers_.empty())
      weighed.reason = "links between GPUs carry more" + what_hosts_could_add();
    by_schedule(weighed, [&](std::uint64_t chunk) {
      return flat_schedule(node_, request_, chunk, /*by_host=*/true);
    });
    return weighed;
  }

  [[nodiscard]] std::string what_hosts_could_add() {
    if (!options_.explain) return {};
    return fmt::format("; host memory as well could add {:.0f} % at most",
                       100 * bounds_.host_gain());
  }

  Evaluation weigh_mixed() {
    Evaluation weighed{Algorithm::mixed, 0, {}, {}, 0, 1, ""};
    if (request_.op != CollectiveOp::allreduce)
      weighed.reason = "for allreduce only" + what_hosts_could_add();
    else if (!no_kernels_.empty())
      weighed.reason = no_kernels_;
    else if (!no_peers_.empty())
      weighed.reason = "kernels go through host memory as well";
    else if (options_.host_bytes == 0)
      weighed.reason = "the ranks share no host memory";
    else
      weighed.reason = why_no_host_part(node_, request_);
    if (!weighed.reason.empty()) return weighed;
    if (uses_table()) return options_.table->cost(request_, options_, Algorithm::mixed);
    double enough = must_reach(Algorithm::mixed);
    if (for_table_ && enough == kMixedMustReach) enough = kTabledMustReach;
    const MixedCost mixed =
        mixed_cost(node_, request_, options_, is_evaluated(Algorithm::mixed) ? 0 : enough);
    if (mixed.us == 0) {
      weighed.reason = mixed.reason;
      return weighed;
    }
    weighed.us = mixed.us;
    weighed.kernel = mixed.kernel;
    weighed.stages = mixed.stages;
    weighed.chunk_bytes = mixed.chunk_bytes;
    weighed.chunks = mixed.chunks;
    weighed.host_count = mixed.count;
    return weighed;
  }

  Evaluation weigh_hierarchical() const {
    Evaluation weighed{Algorithm::hierarchical, 0, {}, {}, 0, 1, ""};
    const bool by_owners =
        request_.op == CollectiveOp::all_gather || request_.op == CollectiveOp::reduce_scatter;
    if (request_.op != CollectiveOp::allreduce && !by_owners) {
      weighed.reason = "for allreduce, reduce_scatter and all_gather only";
    } else if (by_owners && options_.lanes != 0) {
      weighed.reason = "as published for allreduce only";
    } else if (plan_.islands.size() < 2) {
      weighed.reason = "one island: all links between these GPUs are alike";
    } else {
      weighed.reason = no_peers_;
    }
    if (weighed.reason.empty() && request_.needs_tree() && !are_halves_of_tree(plan_.islands))
      weighed.reason = "its islands are not the two halves of the tree in which sums are asked for";
    if (!weighed.reason.empty()) return weighed;
    if (by_links_.size() < 2)
      weighed.reason = "links between GPUs carry as much across sockets as within";
    if (uses_table() && weighed.reason.empty())
      return options_.table->cost(request_, options_, Algorithm::hierarchical);
    // With a lane for each rank of the largest island all links across are used; where an island
    // has fewer, its ranks lead several. Of operations by parts each rank's part is a lane.
    std::size_t members = 0;
    for (const auto& island : plan_.islands) members = std::max(members, island.size());
    for (const int lanes :
         by_owners ? std::vector{request_.ranks()} : std::vector{1, static_cast<int>(members)}) {
      if (options_.lanes != 0 && options_.lanes != lanes) continue;
      Evaluation striped = weighed;
      striped.us = 0;
      striped.lanes = lanes;
      by_schedule(striped, [&](std::uint64_t chunk) {
        return hierarchical_schedule(node_, request_, plan_.islands, lanes, chunk);
      });
      if (weighed.us == 0 || striped.us < weighed.us) weighed = std::move(striped);
    }
    return weighed;
  }

  void weigh_published() {
    const bool can_run =
        request_.op == CollectiveOp::allreduce && plan_.islands.size() > 1 && no_peers_.empty();
    if (!can_run) return;
    const auto schedule = hierarchical_schedule(node_, request_, plan_.islands, /*lanes=*/1,
                                                request_.bytes() / kPublishedChunks);
    plan_.published_us = schedule_time(node_, schedule).us;
  }

  Evaluation weigh_ring() const {
    Evaluation weighed{Algorithm::ring, 0, {}, {}, 0, 1, ""};
    if (request_.op != CollectiveOp::allreduce) {
      weighed.reason = "for allreduce only";
    } else if (!ring_is_linked()) {
      weighed.reason = "there is no link for every hop";
    }
    if (!weighed.reason.empty()) return weighed;
    weighed.reason = request_.needs_tree()
                         ? "sums in another order than the tree: only on request"
                         : "sums in another order than that of ranks: only on request";
    by_schedule(weighed, [&](std::uint64_t chunk) {
      return ring_schedule(node_, request_, plan_.ring, chunk);
    });
    return weighed;
  }

  [[nodiscard]] bool ring_is_linked() const {
    for (std::size_t p = 0; p < plan_.ring.size(); ++p)
      if (!ring_link(p)) return false;
    return true;
  }

  [[nodiscard]] std::optional<int> ring_link(std::size_t place) const {
    const auto gpu = [&](std::size_t p) {
      const int rank = plan_.ring[p % plan_.ring.size()];
      return MemoryId::gpu(request_.gpus[static_cast<std::size_t>(rank)]);
    };
    return node_.find_link(gpu(place), gpu(place + 1));
  }

  /// The size of chunks with which the schedule ends first, if the caller asks for it.
  void by_schedule(Evaluation& weighed,
                   const std::function<CollectiveSchedule(std::uint64_t)>& make) const {
    if (!weighed.reason.empty() && !is_evaluated(weighed.algorithm)) return;
    if (uses_table()) {
      weighed = options_.table->cost(request_, options_, weighed.algorithm);
      return;
    }
    const auto ranks = static_cast<std::uint64_t>(request_.ranks());
    const std::uint64_t unit = weighed.algorithm == Algorithm::hierarchical
                                   ? request_.bytes() / static_cast<std::uint64_t>(weighed.lanes)
                                   : request_.bytes() / ranks;
    const std::uint64_t most = request_.ranks() > kMany ? kMaxChunksOfGroup : kMaxChunks;
    // Scratch and host memory may ask for more chunks than are best.
    for (std::uint64_t chunks = 1; chunks <= (weighed.us == 0 ? kMaxChunksForMemory : most);
         chunks *= 2) {
      const std::uint64_t bytes = options_.chunk_bytes > 0
                                      ? options_.chunk_bytes
                                      : std::max(kMinChunk, (unit + chunks - 1) / chunks);
      const bool last = bytes == kMinChunk || options_.chunk_bytes > 0;
      const CollectiveSchedule schedule = make(bytes);
      if (has_memory(options_, schedule) || last) {
        const ScheduleTime time = schedule_time(node_, schedule);
        if (weighed.us == 0 || time.us < weighed.us) {
          weighed.us = time.us;
          weighed.chunk_bytes = bytes;
          weighed.stages = stages_of(node_, schedule, time);
        }
      }
      if (last) break;
    }
    if (weighed.us == 0 && weighed.reason.empty())
      weighed.reason = "its chunks need more scratch or host memory than there is";
  }

  // ---- Choosing -------------------------------------------------------------------------------

  /// What part of another's time it has to promise to be taken before it.
  [[nodiscard]] double must_reach(Algorithm algorithm) const {
    if (algorithm == Algorithm::relayed) return kRelayedMustReach;
    if (runs_by_kernels(algorithm)) return 1;
    const bool is_switched = std::ranges::any_of(
        node_.links, [](const Link& link) { return link.type == LinkType::nvswitch; });
    if (is_switched) return kCopiesMustReach;
    if (algorithm == Algorithm::mixed) return kMixedMustReach;
    return algorithm == Algorithm::host_trees ? kHostTreesMustReach : kCopiesMustReach;
  }
  /// By how much its prediction counts against the others'.
  [[nodiscard]] double handicapped(const Evaluation& candidate) const {
    return candidate.us / must_reach(candidate.algorithm);
  }

  void take(std::vector<Evaluation>& all) {
    const Evaluation* best = nullptr;
    for (const Evaluation& entry : all) {
      if (entry.us == 0) continue;
      if (options_.algorithm ? entry.algorithm != *options_.algorithm : !entry.reason.empty())
        continue;
      if (!options_.algorithm && !options_.copies && !runs_by_kernels(entry.algorithm)) continue;
      if (best == nullptr || handicapped(entry) < handicapped(*best)) best = &entry;
    }
    if (best == nullptr) {
      const auto asked = std::ranges::find_if(all, [&](const Evaluation& entry) {
        return options_.algorithm && entry.algorithm == *options_.algorithm;
      });
      throw InvalidArgument(
          fmt::format("{} cannot run as {} here: {}", to_string(request_.op),
                      options_.algorithm ? to_string(*options_.algorithm) : "any algorithm",
                      asked != all.end() ? asked->reason : no_kernels_));
    }
    plan_.algorithm = best->algorithm;
    plan_.kernel = best->kernel;
    plan_.stages = best->stages;
    plan_.lanes = best->lanes;
    if (best->algorithm == Algorithm::relayed)
      plan_.relays = relay_shares(node_, request_, *best->kernel);
    plan_.host_count = best->host_count;
    plan_.chunk_bytes = best->chunk_bytes;
    plan_.chunks = best->chunks > 0 ? best->chunks : chunks_of(*best);
    plan_.predicted_us = best->us;
    plan_.bus_gbps = bus_gbps(best->us);
    plan_.reason = options_.algorithm ? "asked for" : "predicted to end first";
    if (!no_peers_.empty())
      plan_.reason += fmt::format("; through host memory, since {}", no_peers_);
    plan_.candidates.push_back(candidate(*best));
    plan_.candidates.back().reason.clear();
    if (options_.explain) explain_others(all, *best);
    describe_order(best->algorithm);
  }

  /// What a table does not say of the plan: its stages.
  void time_schedule() {
    if (runs_by_kernels(plan_.algorithm)) return;
    if (plan_.algorithm == Algorithm::mixed) {
      const std::uint64_t rest = request_.count - plan_.host_count;
      const MixedCost mixed = mixed_cost_of(
          node_, options_, mixed_split(request_, rest * size_of(request_.type), plan_.chunks),
          plan_.chunks);
      plan_.stages = mixed.stages;
      return;
    }
    const CollectiveSchedule schedule = make_collective_schedule(node_, plan_);
    plan_.stages = stages_of(node_, schedule, schedule_time(node_, schedule));
  }

  void explain_others(const std::vector<Evaluation>& all, const Evaluation& taken) {
    for (const Evaluation& entry : all) {
      if (&entry == &taken) continue;
      plan_.candidates.push_back(candidate(entry));
      std::string& reason = plan_.candidates.back().reason;
      if (!reason.empty()) continue;
      if (options_.algorithm)
        reason = "not asked for";
      else if (entry.us >= taken.us)
        reason = fmt::format("{:.2f} times as long", entry.us / taken.us);
      else
        reason = fmt::format("{:.2f} times as long, but what {} has to promise {:.2f}",
                             entry.us / taken.us,
                             runs_by_kernels(entry.algorithm) ? "uses idle GPUs" : "runs by copies",
                             must_reach(entry.algorithm));
    }
  }

  [[nodiscard]] int chunks_of(const Evaluation& weighed) const {
    if (weighed.chunk_bytes == 0) return 0;
    const auto parts = static_cast<std::uint64_t>(
        weighed.algorithm == Algorithm::hierarchical ? weighed.lanes : request_.ranks());
    const std::uint64_t unit = (request_.bytes() + parts - 1) / parts;
    return static_cast<int>(
        std::max<std::uint64_t>(1, (unit + weighed.chunk_bytes - 1) / weighed.chunk_bytes));
  }

  [[nodiscard]] CollectiveCandidate candidate(const Evaluation& weighed) {
    return {weighed.algorithm, weighed.us, bus_gbps(weighed.us),
            options_.explain ? bounds_.bus_gbps(weighed.algorithm, plan_.ring) : 0, weighed.reason};
  }

  void describe_order(Algorithm algorithm) {
    if (!request_.reduces()) return;
    if (request_.needs_tree() && algorithm != Algorithm::ring) {
      plan_.order = tree_text(0, request_.ranks(), "r");
      plan_.rank_order = false;
      return;
    }
    std::vector<std::string> names;
    if (algorithm == Algorithm::hierarchical) {
      for (const auto& island : plan_.islands)
        for (const int rank : island) names.push_back(fmt::format("r{}", rank));
      plan_.rank_order = in_rank_order(plan_.islands);
    } else if (algorithm == Algorithm::ring) {
      for (const int rank : plan_.ring) names.push_back(fmt::format("r{}", rank));
      plan_.rank_order = false;
    } else {
      for (int rank = 0; rank < request_.ranks(); ++rank) names.push_back(fmt::format("r{}", rank));
    }
    plan_.order = fmt::format("{}", fmt::join(names, ", "));
    if (algorithm == Algorithm::ring)
      plan_.order += "; slice s of the ring begins behind its place s";
  }

  /// "((r0 + r1) + (r2 + r3))" of `count` ranks from `first` on.
  static std::string tree_text(int first, int count, const char* name) {
    if (count == 1) return fmt::format("{}{}", name, first);
    const auto half = static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1)));
    return fmt::format("({} + {})", tree_text(first, half, name),
                       tree_text(first + half, count - half, name));
  }

  const Node& node_;
  const CollectiveRequest& request_;
  const CollectiveOptions& options_;
  CollectivePlan plan_;
  bool for_table_ = false;
  std::vector<std::vector<int>> by_links_;
  std::string no_kernels_;
  std::string no_peers_;  // the first GPUs that do not reach each other's memory
  CollectiveBounds bounds_;
};

}  // namespace

AlgorithmCost cost_by_copies(const Node& node, const CollectiveRequest& request,
                             const CollectiveOptions& options, Algorithm algorithm) {
  return PlanMaker(node, request, options).cost(algorithm);
}

CollectivePlan plan_collective(const Node& node, const CollectiveRequest& request,
                               const CollectiveOptions& options) {
  validate(node, request);
  return PlanMaker(node, request, options).make();
}

CollectiveSchedule make_collective_schedule(const Node& node, const CollectivePlan& plan) {
  switch (plan.algorithm) {
    case Algorithm::pairwise:
      return flat_schedule(node, plan.request, plan.chunk_bytes, /*by_host=*/false);
    case Algorithm::host_trees:
      return flat_schedule(node, plan.request, plan.chunk_bytes, /*by_host=*/true);
    case Algorithm::mixed: {
      CollectiveRequest part = plan.request;
      part.count = plan.host_count;
      return host_part_schedule(node, part, plan.chunk_bytes);
    }
    case Algorithm::hierarchical:
      return hierarchical_schedule(node, plan.request, plan.islands, plan.lanes, plan.chunk_bytes);
    case Algorithm::ring: return ring_schedule(node, plan.request, plan.ring, plan.chunk_bytes);
    case Algorithm::none:
    case Algorithm::cells:
    case Algorithm::lines:
    case Algorithm::flat:
    case Algorithm::relayed: break;
  }
  throw InvalidArgument(fmt::format("{} has no schedule of copies", to_string(plan.algorithm)));
}

}  // namespace polypath
