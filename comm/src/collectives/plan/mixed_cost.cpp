#include "collectives/plan/mixed_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "collectives/plan/schedule_stages.hpp"
#include "collectives/plan/schedules.hpp"

namespace polypath {
namespace {

/// Whole chunks of a part that are tried; beyond the last, twice as many until there is memory.
constexpr std::array kWholeChunks{2, 3, 4, 6, 8, 12, 16, 24};
constexpr int kMaxWholeChunks = 4096;
/// What comes before them: two chunks, of three quarters of one in all.
constexpr int kFirstChunks = 2;
constexpr double kBefore = 0.75;
/// Smaller ones are not worth their copies.
constexpr std::uint64_t kMinSlice = std::uint64_t{64} << 10;
/// Ratio of the time of copies to what the schedule says (1.01 to 1.04 on four simulated nodes).
/// The part is made small enough for that: a kernel that waits for copies costs more than the
/// reverse.
constexpr double kCopiesLonger = 1.03;
/// Each brings the two ends closer together.
constexpr int kCorrections = 3;
/// The kernel always has something to carry.
constexpr double kMaxShare = 0.95;
/// Where memory does not suffice, a part is reduced by this factor, repeatedly.
constexpr double kReduced = 0.97;
constexpr int kReductions = 5;
/// With the better part, other chunks may be better.
constexpr int kRounds = 2;

/// Elements of a piece of memory of all ranks.
std::uint64_t granule_of(const CollectiveRequest& request) {
  return 128 / size_of(request.type) * static_cast<std::uint64_t>(request.ranks());
}

struct Ends {
  MixedCost mixed;
  double links_us = 0;  // of the kernel
  double hosts_us = 0;  // of the schedule
};

/// 0 us: there is no memory for it.
Ends ends_of(const Node& node, const CollectiveOptions& options, const MixedSplit& split,
             int chunks) {
  Ends ends;
  if (split.part.count < granule_of(split.part)) return ends;
  MixedCost& mixed = ends.mixed;
  mixed.count = split.part.count;
  mixed.chunk_bytes = split.chunk_bytes;
  if (!has_memory(node, options, split)) return ends;
  const CollectiveSchedule schedule = host_part_schedule(node, split.part, mixed.chunk_bytes);
  const KernelCost kernel = flat_cost(node, split.rest, options.limits);
  Beside beside{kernel.links, kernel.start_us + node.costs.event_us};
  for (std::size_t i = 0; i < beside.bytes.size(); ++i)
    if (node.links[i].type == LinkType::nvswitch) beside.bytes[i] /= node.costs.switch_share;
  const ScheduleTime time = schedule_time(node, schedule, beside);
  ends.links_us = std::max(kernel.us, time.beside_us);
  // It forks from the stream of the call, and joins it.
  ends.hosts_us = kCopiesLonger * time.us + 2 * node.costs.event_us;
  mixed.us = std::max(ends.links_us, ends.hosts_us);
  mixed.chunks = chunks;
  mixed.kernel = kernel.kernel;
  mixed.stages = kernel.stages;
  for (CollectiveStage& stage : stages_of(node, schedule, time)) {
    stage.name += " of the rest";
    stage.moves = stage.name.starts_with("all") ? "sums down to host memory once, and up to all"
                                                : "slices to their owners, by copies";
    mixed.stages.push_back(std::move(stage));
  }
  return ends;
}

class Mixed {
 public:
  Mixed(const Node& node, const CollectiveRequest& request, const CollectiveOptions& options)
      : node_(node),
        request_(request),
        options_(options),
        flat_(flat_cost(node, request, options.limits)),
        of_gpus_(node.links.size(), 0),
        of_hosts_(node.links.size(), 0) {
    const double slice = 1.0 / request.ranks();
    const auto is_rank = [&](MemoryId memory) {
      return memory.is_gpu() && std::ranges::find(request.gpus, memory.index) != request.gpus.end();
    };
    const auto is_near = [&](MemoryId host, int gpu) {
      return node.gpus[static_cast<std::size_t>(gpu)].numa == host.index;
    };
    for (std::size_t i = 0; i < node.links.size(); ++i) {
      const auto& [from, to] = std::pair(node.links[i].from, node.links[i].to);
      if (is_rank(from) && is_rank(to)) {
        of_gpus_[i] = slice;  // to its owner
      } else if (is_rank(from) && to.is_host()) {
        // An owner's sums go down once into each that is near to another rank.
        if (std::ranges::any_of(request.gpus,
                                [&](int gpu) { return gpu != from.index && is_near(to, gpu); }))
          of_hosts_[i] = slice;
      } else if (from.is_host() && is_rank(to) && is_near(from, to.index)) {
        of_hosts_[i] = slice * (request.ranks() - 1);
      }
    }
    const auto bytes = static_cast<double>(request.bytes());
    hosts_us_ = drain(node, of_hosts_, 1).us * bytes;
    kernel_us_ = drains_us(node, flat_.links, node.costs.switch_share);
    part_us_ = drains_us(node, of_gpus_, node.costs.switch_share);
    for (double& us : part_us_) us *= bytes;
  }

  MixedCost best_in(int chunks) {
    min_slice_ = 1;
    const int whole = chunks - kFirstChunks;
    double share = best_share();
    MixedCost best;
    // The links allow for more than memory may.
    for (int i = 0; i < kReductions && cost_of(share, whole).mixed.us == 0; ++i) share *= kReduced;
    for (int round = 0; round < kRounds; ++round) correct(share, whole, best);
    return best;
  }

  MixedCost best(double must_reach) {
    double share = best_share();
    const double at_best = flat_.start_us + links_us(share);
    if (must_reach > 0 && at_best > flat_.us * must_reach)
      return {.reason = fmt::format(
                  "host memory as well could save {:.1f} % at most, of which {:.0f} are asked",
                  100 * (1 - at_best / flat_.us), 100 * (1 - must_reach))};
    if (must_reach == 0) min_slice_ = 1;
    MixedCost best;
    for (int round = 0; round < kRounds; ++round) {
      const int chunks = best_chunks(share);
      if (chunks == 0) break;
      correct(share, chunks, best);
    }
    if (best.us == 0) best.reason = "there is too little scratch or host memory for its chunks";
    return best;
  }

 private:
  [[nodiscard]] double links_us(double share) const {
    double most = 0;
    for (std::size_t i = 0; i < kernel_us_.size(); ++i)
      most = std::max(most, kernel_us_[i] * (1 - share) + part_us_[i] * share);
    return most;
  }
  [[nodiscard]] double hosts_us(double share) const { return hosts_us_ * share; }

  /// Where links between GPUs and those of host memory take equally long.
  [[nodiscard]] double best_share() const {
    double low = 0;
    double high = kMaxShare;
    for (int i = 0; i < 40; ++i) {
      const double middle = (low + high) / 2;
      (hosts_us(middle) < links_us(middle) ? low : high) = middle;
    }
    return low;
  }

  /// With this part, in `chunks` whole chunks; 0 us: there is no memory for it.
  [[nodiscard]] Ends cost_of(double share, int chunks) const {
    const auto kernel_count = static_cast<double>(request_.count) * (1 - share);
    const MixedSplit split =
        mixed_split(request_, static_cast<std::uint64_t>(kernel_count) * size_of(request_.type),
                    chunks + kFirstChunks);
    if (split.chunk_bytes < min_slice_) return {};
    return ends_of(node_, options_, split, chunks + kFirstChunks);
  }

  /// 0: there is memory for none.
  [[nodiscard]] int best_chunks(double share) const {
    int best = 0;
    double best_us = 0;
    for (const int chunks : kWholeChunks) {
      const double us = cost_of(share, chunks).mixed.us;
      if (us == 0 || (best != 0 && us >= best_us)) continue;
      best = chunks;
      best_us = us;
    }
    for (int chunks = 2 * kWholeChunks.back(); best == 0 && chunks <= kMaxWholeChunks; chunks *= 2)
      if (cost_of(share, chunks).mixed.us > 0) best = chunks;
    return best;
  }

  /// Lets both end together.
  void correct(double& share, int chunks, MixedCost& best) const {
    constexpr double kStep = 1e-3;
    for (int i = 0; i < kCorrections; ++i) {
      const Ends ends = cost_of(share, chunks);
      if (ends.mixed.us == 0) return;
      if (best.us == 0 || ends.mixed.us < best.us) best = ends.mixed;
      const double slope = (hosts_us(share + kStep) - hosts_us(share)) / kStep +
                           (links_us(share) - links_us(share + kStep)) / kStep;
      share = std::clamp(share - (ends.hosts_us - ends.links_us) / slope, 0.0, kMaxShare);
    }
  }

  const Node& node_;
  const CollectiveRequest& request_;
  const CollectiveOptions& options_;
  KernelCost flat_;
  LinkBytes of_gpus_;              // of a byte of the part, by the steps of host_part_schedule
  LinkBytes of_hosts_;             // of a byte of the part, by its copies over host memory
  double hosts_us_ = 0;            // of links to and from host memory, were all the part
  std::vector<double> kernel_us_;  // of each link and port, were nothing the part
  std::vector<double> part_us_;    // ... were all the part
  std::uint64_t min_slice_ = kMinSlice;
};

}  // namespace

MixedSplit mixed_split(const CollectiveRequest& request, std::uint64_t kernel_bytes, int chunks) {
  MixedSplit split{request, request, 0};
  // The kernel's part ends where a piece of memory does.
  const std::uint64_t granule = granule_of(request);
  const std::uint64_t count = kernel_bytes / size_of(request.type);
  split.rest.count = std::max(granule, count / granule * granule);
  split.part.count = request.count - std::min(split.rest.count, request.count);
  const auto slice = static_cast<double>(split.part.bytes()) / static_cast<double>(request.ranks());
  split.chunk_bytes = static_cast<std::uint64_t>(slice / (chunks - kFirstChunks + kBefore)) + 1;
  return split;
}

bool has_memory(const Node& node, const CollectiveOptions& options, const MixedSplit& split) {
  const HostPartMemory memory = host_part_memory(node, split.part, split.chunk_bytes);
  return memory.scratch_bytes <= std::min(options.scratch_bytes, kMixedScratch) &&
         memory.host_bytes <= std::min(options.host_bytes, kMixedHost);
}

MixedCost mixed_cost_of(const Node& node, const CollectiveOptions& options, const MixedSplit& split,
                        int chunks) {
  return ends_of(node, options, split, chunks).mixed;
}

MixedCost mixed_cost_in(const Node& node, const CollectiveRequest& request,
                        const CollectiveOptions& options, int chunks) {
  return Mixed(node, request, options).best_in(chunks);
}

MixedCost mixed_cost(const Node& node, const CollectiveRequest& request,
                     const CollectiveOptions& options, double must_reach) {
  return Mixed(node, request, options).best(must_reach);
}

}  // namespace polypath
