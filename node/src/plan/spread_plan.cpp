#include "plan/spread_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "plan/flow.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kMinSpreadChunk = 256 * kKiB;
constexpr std::uint64_t kMaxSpreadChunk = 16 * kMiB;

const Link& link_at(const Node& node, int link) {
  return node.links[static_cast<std::size_t>(link)];
}

/// A link that the driver copies over without staging by itself.
std::optional<int> usable_link(const Node& node, MemoryId from, MemoryId to) {
  const auto link = node.find_link(from, to);
  if (!link || link_at(node, *link).type == LinkType::bounce) return std::nullopt;
  return link;
}

/// Nothing where the GPU does not reach the source and all others.
std::optional<SpreadTree> tree_of(const Node& node, MemoryId src, const std::vector<int>& gpus,
                                  int gpu) {
  const auto feed = usable_link(node, src, MemoryId::gpu(gpu));
  if (!feed) return std::nullopt;
  SpreadTree tree;
  tree.gpu = gpu;
  tree.feed = *feed;
  for (const int other : gpus) {
    if (other == gpu) continue;
    const auto link = usable_link(node, MemoryId::gpu(gpu), MemoryId::gpu(other));
    if (!link) return std::nullopt;
    tree.forward.push_back(*link);
  }
  return tree;
}

double slowest(const std::vector<double>& rates) {
  return rates.empty() ? 0 : *std::ranges::min_element(rates);
}

/// What the slowest of native copies to all GPUs at once gets.
double native_gbps(const Node& node, MemoryId src, const std::vector<int>& gpus) {
  Demand copies{.bytes = 1, .routes = {}};
  for (const int gpu : gpus) {
    const auto link = node.find_link(src, MemoryId::gpu(gpu));
    if (!link) return 0;
    copies.routes.push_back({RouteKind::direct, {}, {*link}});
  }
  return slowest(fair_rates(node, {copies}).front());
}

double forward_gbps(const Node& node, const SpreadTree& tree) {
  Demand copies{.bytes = 1, .routes = {}};
  for (const int link : tree.forward) copies.routes.push_back({RouteKind::direct, {}, {link}});
  return slowest(fair_rates(node, {copies}).front());
}

/// To begin and end a leg of a tree, beyond its calls: spreads of 4 to 64 MiB with 16 legs took 35
/// to 57 us longer than the rest says (4 x H200).
constexpr double kTreeLegUs = 2.5;

/// CPU time of one chunk of each tree: its copy and event, and a wait and a copy for each forward.
double round_us(const Costs& costs, const SpreadTrees& trees) {
  double us = 0;
  for (const SpreadTree& tree : trees.trees)
    us += (costs.copy_issue_us + costs.call_us) * static_cast<double>(1 + tree.forward.size());
  return us;
}

/// Forks, joins, and the start of both legs: independent of the size.
double fixed_us(const Costs& costs, const SpreadTrees& trees) {
  const auto gpus = static_cast<double>(trees.gpus.size());
  const auto feeders = static_cast<double>(trees.trees.size());
  // Each caller's stream is forked from and joined; each stream of a tree is waited for.
  return staged_fixed_us(costs) + 2 * costs.event_us + kTreeLegUs * feeders * gpus +
         costs.call_us * (4 * gpus + feeders * (2 + 2 * (gpus - 1)));
}

struct SpreadTimes {
  double round_us = 0;
  double fixed_us = 0;
  double gbps = 0;          ///< of all trees together
  double forward_gbps = 0;  ///< of the slowest
};

/// From the call to the last byte with chunks of `chunk` bytes in the largest share.
double time_us(const Costs& costs, const SpreadTimes& times, double bytes, double share,
               double chunk) {
  const double chunks = std::ceil(share / chunk);
  const double links_us = bytes / (times.gbps * kBytesPerGbpsUs) + costs.copy_gap_us * chunks;
  const double issue_us = times.round_us * (chunks - 1) + chunk / share * links_us;
  const double fill_us = chunk / (times.forward_gbps * kBytesPerGbpsUs) + costs.copy_gap_us;
  return times.fixed_us + std::max(links_us, issue_us) + fill_us;
}

std::uint64_t granular(double bytes) {
  return static_cast<std::uint64_t>(bytes) / kGranule * kGranule;
}

/// Adds the shares, each in `chunks` chunks.
void cut(const SpreadTrees& trees, double gbps, int chunks, SpreadPlan& plan) {
  std::uint64_t offset = 0;
  for (std::size_t t = 0; t < trees.trees.size(); ++t) {
    const std::uint64_t left = plan.bytes - offset;
    const double part = static_cast<double>(plan.bytes) * trees.trees[t].gbps / gbps;
    const std::uint64_t bytes = t + 1 == trees.trees.size() ? left : std::min(left, granular(part));
    if (bytes == 0) continue;
    const auto count = static_cast<std::uint64_t>(chunks);
    const std::uint64_t chunk = (bytes + count - 1) / count;
    plan.shares.push_back({.tree = t,
                           .offset = offset,
                           .bytes = bytes,
                           .chunk_bytes = (chunk + kGranule - 1) / kGranule * kGranule});
    offset += bytes;
  }
  plan.chunks = chunks;
}

}  // namespace

Route legs_of(const SpreadTree& tree) {
  Route route{RouteKind::via_gpu, MemoryId::gpu(tree.gpu), {tree.feed}};
  route.legs.insert(route.legs.end(), tree.forward.begin(), tree.forward.end());
  return route;
}

SpreadTrees make_spread_trees(const Node& node, MemoryId src, const std::vector<int>& gpus,
                              std::uint64_t without) {
  SpreadTrees trees;
  trees.src = src;
  trees.gpus = gpus;
  trees.native_gbps = native_gbps(node, src, gpus);
  if (gpus.size() < 2 || gpus.size() > kMaxSpreadGpus) return trees;
  Demand demand{.bytes = 1, .routes = {}};
  for (const int gpu : gpus) {
    if (gpu < 64 && (without >> gpu & 1) != 0) continue;
    auto tree = tree_of(node, src, gpus, gpu);
    if (!tree) continue;
    tree->forward_gbps = forward_gbps(node, *tree);
    demand.routes.push_back(legs_of(*tree));
    trees.trees.push_back(std::move(*tree));
  }
  if (trees.trees.empty()) return trees;
  const std::vector<double> rates = fair_rates(node, {demand}).front();
  for (std::size_t t = 0; t < rates.size(); ++t) trees.trees[t].gbps = rates[t];
  trees.limit_gbps = maximum_flow(node, {demand}).gbps;
  return trees;
}

SpreadPlan plan_spread(const Node& node, const SpreadTrees& trees, std::uint64_t bytes,
                       std::uint64_t chunk_bytes, bool explains) {
  const Costs& costs = node.costs;
  SpreadPlan plan;
  plan.bytes = bytes;
  const auto native = [&](const char* why) {
    if (explains) plan.reason = why;
    plan.predicted_us = plan.native_us;
    return plan;
  };
  const auto count = static_cast<double>(bytes);
  if (trees.native_gbps > 0)
    plan.native_us = costs.copy_start_us + count / (trees.native_gbps * kBytesPerGbpsUs);
  if (trees.gpus.size() < 2) return native("there is one GPU");
  if (trees.trees.empty() || bytes == 0) return native("no GPU may send on what it fetches");

  SpreadTimes times;
  times.round_us = round_us(costs, trees);
  times.fixed_us = fixed_us(costs, trees);
  times.forward_gbps = std::numeric_limits<double>::infinity();
  double widest = 0;
  for (const SpreadTree& tree : trees.trees) {
    times.gbps += tree.gbps;
    widest = std::max(widest, tree.gbps);
    times.forward_gbps = std::min(times.forward_gbps, tree.forward_gbps);
  }
  const double share = std::max(1.0, count * widest / times.gbps);
  // No stream may be filled.
  const double least = share / kMaxSpreadChunks;
  double best = 0;
  double best_us = std::numeric_limits<double>::infinity();
  const auto consider = [&](double chunk) {
    chunk = std::clamp(chunk, least, share);
    const double us = time_us(costs, times, count, share, chunk);
    if (us >= best_us) return;
    best_us = us;
    best = chunk;
  };
  if (chunk_bytes != 0) {
    consider(static_cast<double>(chunk_bytes));
  } else {
    for (std::uint64_t chunk = kMinSpreadChunk; chunk <= kMaxSpreadChunk; chunk *= 2)
      consider(static_cast<double>(chunk));
    if (least > static_cast<double>(kMaxSpreadChunk)) consider(least);
  }
  plan.predicted_us = best_us;
  const double min_gain_us = std::max(0.02 * plan.native_us, staged_fixed_us(costs) / 3);
  if (plan.native_us > 0 && plan.predicted_us > plan.native_us - min_gain_us)
    return native("each GPU's own copy ends as soon");
  cut(trees, times.gbps, static_cast<int>(std::ceil(share / best)), plan);
  if (explains)
    plan.reason = fmt::format("{} GPUs fetch a part each and send it on, in {} chunks",
                              plan.shares.size(), plan.chunks);
  return plan;
}

Schedule make_schedule(const SpreadTrees& trees, const SpreadPlan& plan) {
  Schedule schedule;
  const std::size_t legs = trees.gpus.size();
  const std::size_t copies = plan.shares.size() * legs * static_cast<std::size_t>(plan.chunks);
  schedule.steps.reserve(copies);
  schedule.waits.reserve(copies);
  std::vector<int> feeds(plan.shares.size());  // of each share, the step of the latest chunk
  // The copy of share `s` to GPU `gpu`; a share may have fewer chunks than others.
  const auto add = [&](std::size_t s, int chunk, std::size_t leg, int link, int gpu) {
    const SpreadShare& share = plan.shares[s];
    const std::uint64_t done = static_cast<std::uint64_t>(chunk) * share.chunk_bytes;
    if (done >= share.bytes) return;
    Step step;
    step.queue = static_cast<int>(s * legs + leg);
    step.link = link;
    step.from.offset = share.offset + done;
    step.to = {.buffer = BufferKind::output, .owner = gpu, .offset = step.from.offset};
    step.bytes = std::min(share.chunk_bytes, share.bytes - done);
    if (leg == 0) {
      feeds[s] = schedule.add(step, {});
    } else {
      step.from = schedule.steps[static_cast<std::size_t>(feeds[s])].to;
      schedule.add(step, {&feeds[s], 1});
    }
  };
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    for (std::size_t s = 0; s < plan.shares.size(); ++s) {
      const SpreadTree& tree = trees.trees[plan.shares[s].tree];
      add(s, chunk, 0, tree.feed, tree.gpu);
    }
    for (std::size_t s = 0; s < plan.shares.size(); ++s) {
      const SpreadTree& tree = trees.trees[plan.shares[s].tree];
      std::size_t leg = 0;
      for (const int gpu : trees.gpus)
        if (gpu != tree.gpu) {
          add(s, chunk, leg + 1, tree.forward[leg], gpu);
          ++leg;
        }
    }
  }
  return schedule;
}

}  // namespace polypath
