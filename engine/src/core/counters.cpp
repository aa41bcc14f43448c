#include "core/counters.hpp"

#include <cstddef>
#include <vector>

namespace polypath {

std::string_view to_string(NativeReason reason) noexcept {
  switch (reason) {
    case NativeReason::small: return "small";
    case NativeReason::no_gain: return "no gain";
    case NativeReason::links_in_use: return "links used by concurrent transfers";
    case NativeReason::links_loaded: return "links loaded";
    case NativeReason::threads_slow: return "copy threads slow";
    case NativeReason::pageable: return "pageable memory";
    case NativeReason::managed: return "managed memory";
    case NativeReason::capturing: return "stream in capture";
    case NativeReason::same_memory: return "same memory";
    case NativeReason::other_context: return "not a primary context";
    case NativeReason::several_allocations: return "several allocations";
    case NativeReason::not_ready: return "routes not ready";
    case NativeReason::busy: return "routes busy";
    case NativeReason::other_process: return "memory of a process without polypath";
    case NativeReason::unreachable: return "memory out of reach";
    case NativeReason::context_reset: return "primary context reset";
    case NativeReason::driver_error: return "driver error";
    case NativeReason::count_: break;
  }
  return "?";
}

std::string_view to_string(ExclusionReason reason) noexcept {
  switch (reason) {
    case ExclusionReason::not_ready: return "not ready";
    case ExclusionReason::busy: return "busy";
    case ExclusionReason::failed: return "preparation failed";
    case ExclusionReason::unreachable: return "memory out of reach";
    case ExclusionReason::loaded: return "link loaded";
    case ExclusionReason::count_: break;
  }
  return "?";
}

void Counters::count_native(NativeReason reason, std::uint64_t bytes) noexcept {
  native_[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  native_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

void Counters::count_left_out(ExclusionReason reason) noexcept {
  left_out_[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void Counters::count_split(const GroupSchedule& schedule, int followed) {
  const std::lock_guard lock(mutex_);
  split_.followed += static_cast<std::uint64_t>(followed);
  for (const auto& transfer : schedule.transfers) {
    if (!transfer->split()) continue;
    ++split_.split;
    split_.bytes += transfer->request.bytes;
    split_.copies += transfer->steps.size();
    std::vector<std::array<LinkCount, 2>> counts(transfer->routes.size());  // of each leg
    for (const Step& step : transfer->steps) {
      LinkCount& count = counts[route_of(step)][leg_of(step)];
      ++count.copies;
      count.bytes += step.bytes;
    }
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const Route& route = transfer->routes[r];
      RouteCount& count = count_of(transfer->request, route);
      ++count.transfers;
      count.bytes += counts[r][0].bytes;
      for (std::size_t leg = 0; leg < route.legs.size(); ++leg) {
        LinkCount& link = split_.links[route.legs[leg]];
        link.copies += counts[r][leg].copies;
        link.bytes += counts[r][leg].bytes;
      }
    }
  }
}

void Counters::count_blocks(const TransferPlan& plan, std::size_t route, std::size_t entries) {
  const RouteShare& share = plan.routes[route];
  const std::lock_guard lock(mutex_);
  RouteCount& count =
      split_.batches.routes[{plan.request.src, plan.request.dst, to_string(share.route)}];
  count.transfers += entries;
  count.bytes += share.bytes;
}

void Counters::count_native_block(NativeReason reason, std::uint64_t bytes) noexcept {
  native_blocks_[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  native_block_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

void Counters::count_declined_blocks(NativeReason reason, std::size_t count,
                                     std::uint64_t bytes) noexcept {
  native_blocks_[static_cast<std::size_t>(reason)].fetch_add(count, std::memory_order_relaxed);
  native_block_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

void Counters::count_pageable(const TransferPlan& plan,
                              const std::vector<std::uint64_t>& route_bytes,
                              const std::vector<std::uint64_t>& route_chunks, bool is_file,
                              bool is_further_part) {
  const std::lock_guard lock(mutex_);
  if (!is_further_part) {
    ++split_.split;
    ++(is_file ? split_.files : split_.pageable);
  }
  split_.bytes += plan.request.bytes;
  for (std::size_t r = 0; r < plan.routes.size(); ++r) {
    const Route& route = plan.routes[r].route;
    RouteCount& count = count_of(plan.request, route);
    ++count.transfers;
    count.bytes += route_bytes[r];
    for (const int leg : route.legs) {
      split_.copies += route_chunks[r];
      LinkCount& link = split_.links[leg];
      link.copies += route_chunks[r];
      link.bytes += route_bytes[r];
    }
  }
}

void Counters::count_spread(MemoryId src, const std::vector<int>& gpus,
                            const std::map<int, std::uint64_t>& parts, bool is_pageable) {
  const std::lock_guard lock(mutex_);
  Snapshot::Spreads& spreads = split_.spreads;
  ++spreads.calls;
  if (is_pageable) ++spreads.pageable;
  for (const auto& [feeder, bytes] : parts) {
    for (const int gpu : gpus) {
      const std::string route =
          feeder == gpu ? "direct" : "via " + to_string(MemoryId::gpu(feeder));
      RouteCount& count = spreads.routes[{src, MemoryId::gpu(gpu), route}];
      ++count.transfers;
      count.bytes += bytes;
    }
  }
}

void Counters::count_native_spread(NativeReason reason) noexcept {
  native_spreads_[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void Counters::reset() {
  const std::lock_guard lock(mutex_);
  split_ = {};
  routes_ = {};
  batches_ = 0;
  large_blocks_ = 0;
  native_block_bytes_ = 0;
  for (auto& count : native_blocks_) count = 0;
  for (auto& count : native_spreads_) count = 0;
  native_bytes_ = 0;
  failed_ = 0;
  changed_by_load_ = 0;
  for (auto& count : native_) count = 0;
  for (auto& count : left_out_) count = 0;
}

Counters::Snapshot Counters::snapshot() const {
  const std::lock_guard lock(mutex_);
  Snapshot snapshot = split_;
  for (const auto& [key, count] : routes_) {
    const auto& [src, dst, kind, via] = key;
    RouteCount& total = snapshot.routes[{src, dst, to_string(Route{kind, via, {}})}];
    total.transfers += count.transfers;
    total.bytes += count.bytes;
  }
  snapshot.failed = failed_;
  snapshot.changed_by_load = changed_by_load_;
  snapshot.bytes += native_bytes_;
  for (std::size_t i = 0; i < native_.size(); ++i) snapshot.native[i] = native_[i];
  for (std::size_t i = 0; i < left_out_.size(); ++i) snapshot.excluded[i] = left_out_[i];
  snapshot.batches.calls = batches_;
  snapshot.batches.large = large_blocks_;
  snapshot.batches.native_bytes = native_block_bytes_;
  for (std::size_t i = 0; i < native_blocks_.size(); ++i) {
    snapshot.batches.native_by_reason[i] = native_blocks_[i];
    snapshot.batches.native += native_blocks_[i];
  }
  for (std::size_t i = 0; i < native_spreads_.size(); ++i) {
    snapshot.spreads.native_by_reason[i] = native_spreads_[i];
    snapshot.spreads.native += native_spreads_[i];
  }
  snapshot.spreads.calls += snapshot.spreads.native;
  return snapshot;
}

}  // namespace polypath
