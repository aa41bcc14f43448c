#include "core/spread_dispatcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/log.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {
namespace {

constexpr std::size_t kMaxTreesKept = 256;
constexpr std::size_t kMaxSpreadTasks = 256;
/// No GPU may feed.
constexpr std::uint64_t kNoFeeders = ~std::uint64_t{0};

std::uint64_t bit_of(int gpu) noexcept { return gpu < 64 ? std::uint64_t{1} << gpu : 0; }

/// What the shares put on links, for those that count load: one transfer with a route for each.
Plan load_of(const SpreadTrees& trees, const SpreadPlan& plan) {
  Plan load;
  load.predicted_us = plan.predicted_us;
  load.native_us = plan.native_us;
  load.limit_gbps = trees.limit_gbps;
  TransferPlan& transfer = load.transfers.emplace_back();
  transfer.request = {
      .src = trees.src, .dst = MemoryId::gpu(trees.gpus.front()), .bytes = plan.bytes};
  for (const SpreadShare& share : plan.shares) {
    const SpreadTree& tree = trees.trees[share.tree];
    transfer.routes.push_back({.route = legs_of(tree),
                               .offset = share.offset,
                               .bytes = share.bytes,
                               .chunks = plan.chunks,
                               .chunk_bytes = share.chunk_bytes,
                               .gbps = tree.gbps});
  }
  return load;
}

std::map<int, std::uint64_t> parts_of(const SpreadTrees& trees, const SpreadPlan& plan) {
  std::map<int, std::uint64_t> parts;
  for (const SpreadShare& share : plan.shares) parts[trees.trees[share.tree].gpu] += share.bytes;
  return parts;
}

/// Throws InvalidArgument where two destinations overlap.
void check_overlaps(const Spread& spread) {
  std::vector<std::size_t> order(spread.count);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](std::size_t i) { return spread.at(i).dst; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const CUdeviceptr low = spread.at(order[i - 1]).dst;
    const CUdeviceptr high = spread.at(order[i]).dst;
    if (high - low < spread.bytes)
      throw InvalidArgument(fmt::format("destinations {} and {} overlap: {} and {}", order[i - 1],
                                        order[i], range_text(low, spread.bytes),
                                        range_text(high, spread.bytes)));
  }
}

}  // namespace

Transfer Spread::at(std::size_t i) const noexcept {
  const auto stream = static_cast<CUstream>(streams[i]);
  return {reinterpret_cast<CUdeviceptr>(dst[i]), src, bytes,
          stream != nullptr ? stream : CU_STREAM_LEGACY};
}

SpreadDispatcher::SpreadDispatcher(const NodeSource& source, const Options& options,
                                   Devices& devices, ImportedMemories& imports,
                                   SharedMappings& shared, PeerProcesses& others,
                                   Counters& counters, TransferDispatcher& transfers)
    : source_(source),
      options_(options),
      devices_(devices),
      others_(others),
      counters_(counters),
      transfers_(transfers),
      classifier_(source, devices, imports, shared, transfers.min_split_bytes()),
      preparing_(kMaxSpreadTasks) {}

// ---- what a spread is ---------------------------------------------------------------------------

std::optional<NativeReason> SpreadDispatcher::classify_one(Call& call, std::size_t index) {
  EndInfos infos;
  const auto ends = classifier_.ends_of(call.spread.at(index), infos);
  if (const auto* const reason = std::get_if<NativeReason>(&ends)) {
    if (*reason != NativeReason::same_memory) return *reason;
    call.local.push_back(index);
    return std::nullopt;
  }
  const auto& resolved = std::get<ResolvedTransfer>(ends);
  if (!resolved.request.dst.is_gpu()) return NativeReason::no_gain;
  if (resolved.dst.import != nullptr || resolved.src.import != nullptr)
    return NativeReason::other_process;
  // A GPU has one buffer that its part lands in.
  if (std::ranges::find(call.gpus, resolved.request.dst.index) != call.gpus.end())
    return NativeReason::no_gain;
  call.is_pageable = resolved.is_pageable;
  auto classified = classifier_.splittable(resolved);
  if (const auto* const reason = std::get_if<NativeReason>(&classified)) return *reason;
  call.gpus.push_back(resolved.request.dst.index);
  call.transfers.push_back(std::get<SplittableTransfer>(std::move(classified)));
  call.resolved.push_back(resolved);
  return std::nullopt;
}

std::optional<NativeReason> SpreadDispatcher::classify(Call& call) {
  std::optional<NativeReason> reason;
  for (std::size_t i = 0; i < call.spread.count; ++i) {
    try {
      // Arguments of all are checked before anything is issued.
      if (const auto why = classify_one(call, i); why && !reason) reason = why;
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("destination {}: {}", i, error.what()));
    } catch (const DriverError& error) {
      log_info("as many native copies instead: {}", error.what());
      if (!reason) reason = NativeReason::driver_error;
    }
  }
  check_overlaps(call.spread);
  std::ranges::sort(call.gpus);
  if (reason) return reason;
  if (devices_.lost()) return NativeReason::context_reset;
  // Two of one host memory, or of host memory and a GPU that the node has no name for.
  const bool has_gpu_source =
      !call.transfers.empty() && call.transfers.front().request.src.is_gpu();
  if (!call.local.empty() && !has_gpu_source) return NativeReason::same_memory;
  if (call.gpus.size() < 2 || call.gpus.size() > kMaxSpreadGpus) return NativeReason::no_gain;
  return std::nullopt;
}

// ---- which GPUs feed ----------------------------------------------------------------------------

SpreadDispatcher::TreesPtr SpreadDispatcher::make_trees(const Key& key) {
  const auto& [src, gpus, without] = key;
  auto trees = std::make_shared<const SpreadTrees>(make_spread_trees(node(), src, gpus, without));
  const std::lock_guard lock(mutex_);
  if (trees_.size() >= kMaxTreesKept) trees_.clear();
  trees_[key] = trees;
  wanted_.erase(key);
  return trees;
}

SpreadDispatcher::TreesPtr SpreadDispatcher::trees_of(const Key& key) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = trees_.find(key); known != trees_.end()) return known->second;
    if (options_.prepare != PrepareMode::wait && !wanted_.insert(key).second) return nullptr;
  }
  if (options_.prepare == PrepareMode::wait) return make_trees(key);
  if (!preparing_.add([this, key] { make_trees(key); })) {
    const std::lock_guard lock(mutex_);
    wanted_.erase(key);
  }
  return nullptr;
}

void SpreadDispatcher::forget() {
  const std::lock_guard lock(mutex_);
  trees_.clear();
}

void SpreadDispatcher::prepare_tree(const SpreadTree& tree, int copies) {
  const RelaxedCapture relaxed(driver());
  try {
    RouteResources& resources = transfers_.resources();
    resources.prepare_link(tree.feed, copies);
    for (const int link : tree.forward) resources.prepare_link(link, copies);
    const std::lock_guard lock(mutex_);
    unprepared_.erase(tree.feed);
  } catch (const std::exception& error) {
    log_info("GPU {} sends nothing on: {}", tree.gpu, error.what());
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = unprepared_.try_emplace(tree.feed);
    if (!is_new) known->second.failed();
  }
}

void SpreadDispatcher::request(const SpreadTree& tree, int copies) {
  const std::pair key(tree.feed, copies);
  {
    const std::lock_guard lock(mutex_);
    if (!requested_.insert(key).second) return;
  }
  const auto done = [this, key] {
    const std::lock_guard lock(mutex_);
    requested_.erase(key);
  };
  const bool is_added = preparing_.add([=, this] {
    prepare_tree(tree, copies);
    done();
  });
  if (!is_added) done();
  if (options_.prepare == PrepareMode::wait) preparing_.wait();
}

bool SpreadDispatcher::is_ready(const SpreadTree& tree) {
  RouteResources& resources = transfers_.resources();
  return resources.is_link_ready(tree.feed) &&
         std::ranges::all_of(tree.forward, [&](int link) { return resources.is_link_ready(link); });
}

bool SpreadDispatcher::is_usable(const SpreadTree& tree) {
  bool has_failed = false;
  {
    const std::lock_guard lock(mutex_);
    const auto known = unprepared_.find(tree.feed);
    has_failed = known != unprepared_.end();
    if (has_failed && !known->second.due()) return false;
  }
  if (!has_failed && is_ready(tree)) return true;
  request(tree, 1);
  const std::lock_guard lock(mutex_);
  return !unprepared_.contains(tree.feed) && is_ready(tree);
}

void SpreadDispatcher::exclude(int gpu, ExclusionReason why, NativeReason native,
                               Exclusions& without) {
  without.feeders |= bit_of(gpu);
  without.reason = native;
  counters_.count_left_out(why);
}

bool SpreadDispatcher::all_ready(const Call& call, const SpreadTrees& trees, const SpreadPlan& plan,
                                 Exclusions& without) {
  const Tolerance allowed =
      tolerance(plan.predicted_us, plan.native_us, static_cast<int>(plan.shares.size()));
  bool is_ready = true;
  for (const SpreadShare& share : plan.shares) {
    const SpreadTree& tree = trees.trees[share.tree];
    const auto leave_out = [&](ExclusionReason why, NativeReason native) {
      is_ready = false;
      exclude(tree.gpu, why, native, without);
    };
    const int feeder = transfers_.resources().issuer(tree.feed);
    const double saved_us = (plan.native_us - plan.predicted_us) /
                            static_cast<double>(plan.shares.size() * call.transfers.size());
    const auto reaches_all = [&](auto&& has) {
      return has(call.transfers.front().src_access, feeder) &&
             std::ranges::all_of(call.transfers, [&](const SplittableTransfer& each) {
               return has(each.dst_access, tree.gpu) &&
                      (each.request.dst.index != tree.gpu || has(each.dst_access, feeder));
             });
    };
    const auto may = [&](const Access& access, int gpu) { return access.possible(driver(), gpu); };
    const auto obtains = [&](const Access& access, int gpu) {
      return access.obtain(driver(), gpu, saved_us);
    };
    if (devices_.has_failed(tree.gpu)) {
      leave_out(ExclusionReason::failed, NativeReason::not_ready);
    } else if (!reaches_all(may)) {
      leave_out(ExclusionReason::unreachable, NativeReason::unreachable);
    } else if (!is_usable(tree)) {
      leave_out(ExclusionReason::not_ready, NativeReason::not_ready);
    } else if (!reaches_all(obtains)) {
      leave_out(ExclusionReason::unreachable, NativeReason::unreachable);
    } else if (transfers_.load().is_on() &&
               transfers_.load().is_loaded(legs_of(tree), allowed, call.around.look)) {
      without.is_changed_by_load = true;
      leave_out(ExclusionReason::loaded, NativeReason::links_loaded);
    }
  }
  return is_ready;
}

// ---- issuing ------------------------------------------------------------------------------------

bool SpreadDispatcher::run(const Call& call, const SpreadTrees& trees, const SpreadPlan& plan,
                           Exclusions& without, bool& midway) {
  const Plan load = load_of(trees, plan);
  if (!devices_.alive(load)) {
    without.feeders = kNoFeeders;
    without.reason = NativeReason::context_reset;
    return false;
  }
  BoundSpread bound{.src = call.spread.src, .ends = {}, .sample = {}};
  for (const SplittableTransfer& each : call.transfers)
    bound.ends.push_back({.gpu = each.request.dst.index,
                          .dst = each.transfer.dst,
                          .caller = each.caller,
                          .caller_gpu = each.caller_gpu});
  for (const SpreadShare& share : plan.shares)
    others_.started(
        {.src = trees.src, .dst = MemoryId::gpu(trees.trees[share.tree].gpu), .bytes = share.bytes},
        plan.predicted_us);
  for (std::size_t i = 0; i < call.transfers.size(); ++i)
    transfers_.note_plan(call.around, i, load);
  LoadMonitor& monitor = transfers_.load();
  LoadMonitor::OwnIssue own(monitor, load, call.around.look.first_stream());
  if (monitor.is_due_for_sample(load.transfers.front(), 0, call.around.look.now_ns))
    bound.sample = monitor.sample(load.transfers.front(), bound.ends.front().caller_gpu,
                                  call.around.look.now_ns);
  const SpreadResult result = run_spread(driver(), transfers_.resources(), trees, plan, bound);
  own.end(result.is_issued);
  if (result.busy_link >= 0) {
    if (const auto more = transfers_.resources().next_link_size(result.busy_link))
      for (const SpreadShare& share : plan.shares)
        if (trees.trees[share.tree].gpu == result.busy_gpu) request(trees.trees[share.tree], *more);
    exclude(result.busy_gpu, ExclusionReason::busy, NativeReason::busy, without);
    return false;
  }
  if (result.error == nullptr) {
    if (bound.sample != nullptr)
      monitor.keep(bound.sample, load, 0, call.around.look, own.begun_ns());
    monitor.note_split(load, call.around.look);
    monitor.look_after_issue();
    counters_.count_spread(trees.src, trees.gpus, parts_of(trees, plan), false);
    return true;
  }
  midway = result.is_issued && !result.is_ordered && !devices_.any_reset();
  if (midway) std::rethrow_exception(result.error);
  try {
    std::rethrow_exception(result.error);
  } catch (const std::exception& error) {
    log_info("as many native copies instead: {}", error.what());
  }
  without.feeders = kNoFeeders;
  without.reason = devices_.any_reset() ? NativeReason::context_reset : NativeReason::driver_error;
  return false;
}

std::optional<NativeReason> SpreadDispatcher::spread_pinned(Call& call, bool& midway) {
  const RelaxedCapture relaxed(driver());
  call.around = transfers_.look_around(call.transfers);
  const MemoryId src = call.transfers.front().request.src;
  Exclusions without;
  // Each round leaves out at least one feeder more, until none is left.
  for (;;) {
    if (without.feeders == kNoFeeders) return without.reason;
    const TreesPtr trees = trees_of({src, call.gpus, without.feeders});
    if (trees == nullptr) return without.feeders == 0 ? NativeReason::not_ready : without.reason;
    if (trees->trees.empty() && without.feeders == 0) return NativeReason::unreachable;
    const SpreadPlan plan = plan_spread(node(), *trees, call.spread.bytes, options_.chunk_size);
    if (plan.native()) return without.reason;
    if (!all_ready(call, *trees, plan, without)) continue;
    if (!run(call, *trees, plan, without, midway)) continue;
    if (without.is_changed_by_load) counters_.count_changed_by_load();
    return std::nullopt;
  }
}

std::optional<NativeReason> SpreadDispatcher::spread_pageable(Call& call, bool& midway) {
  // It is sent on from each GPU that the plan's routes lead over.
  const TreesPtr trees = trees_of({call.resolved.front().request.src, call.gpus, 0});
  if (trees == nullptr) return NativeReason::not_ready;
  if (trees->trees.size() != call.gpus.size()) return NativeReason::unreachable;
  std::map<int, std::uint64_t> parts;
  const auto reason = transfers_.spread_pageable(call.resolved, parts, midway);
  if (!reason) counters_.count_spread(trees->src, trees->gpus, parts, true);
  return reason;
}

void SpreadDispatcher::copy_local(const Call& call) {
  for (const std::size_t index : call.local)
    transfers_.native_copy_in_its_context(call.spread.at(index), NativeReason::same_memory);
}

void SpreadDispatcher::natively(const Spread& spread, NativeReason reason, bool is_pageable) {
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i < spread.count; ++i) transfers.push_back(spread.at(i));
  counters_.count_native_spread(reason);
  // The driver copies pageable memory at a fraction of a link's rate.
  if (is_pageable) return transfers_.issue_group(transfers);
  for (const Transfer& transfer : transfers)
    transfers_.native_copy_in_its_context(transfer, reason);
}

void SpreadDispatcher::issue(const Spread& spread) {
  if (spread.count == 0 || spread.bytes == 0) return;
  if (spread.dst == nullptr || spread.streams == nullptr)
    throw InvalidArgument("dst or streams of the spread is null");
  Call call{.spread = spread};
  std::optional<NativeReason> reason = classify(call);
  bool midway = false;
  if (!reason) {
    try {
      reason = call.is_pageable ? spread_pageable(call, midway) : spread_pinned(call, midway);
    } catch (const std::exception& error) {
      if (midway) throw;
      log_warn("as many native copies instead: {}", error.what());
      reason = NativeReason::driver_error;
    }
  }
  if (reason) return natively(spread, *reason, call.is_pageable);
  copy_local(call);
}

// ---- asked for ----------------------------------------------------------------------------------

void SpreadDispatcher::prepare(MemoryId src, const std::vector<int>& destinations) {
  std::vector<int> gpus = destinations;
  std::ranges::sort(gpus);
  for (const int gpu : gpus) devices_.context_for_program(gpu);
  const TreesPtr trees = make_trees({src, gpus, 0});
  for (const SpreadTree& tree : trees->trees) prepare_tree(tree, 1);
  if (src.is_host() && gpus.size() > 1 && trees->trees.size() == gpus.size())
    transfers_.prepare_pageable_spread(src, gpus);
}

std::pair<SpreadTrees, SpreadPlan> SpreadDispatcher::plan(MemoryId src,
                                                          const std::vector<int>& gpus,
                                                          std::uint64_t bytes) {
  SpreadTrees trees = make_spread_trees(node(), src, gpus, 0);
  SpreadPlan plan = plan_spread(node(), trees, bytes, options_.chunk_size, true);
  return {std::move(trees), std::move(plan)};
}

}  // namespace polypath
