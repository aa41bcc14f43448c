// Transfers from and to pageable host memory, and from files: which routes carry them now, and what
// these lack.
#include <algorithm>
#include <atomic>
#include <cstddef>

#include "base/log.hpp"
#include "base/units.hpp"
#include "core/transfer_dispatcher.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {
namespace {

/// A plan of this size, for pinned memory, names the routes and their rates.
constexpr std::uint64_t kRatedBytes = kGiB;
/// Plans that are kept; with more sizes than that, all are made again.
constexpr std::size_t kMaxPageablePlans = 256;
/// Copies with more page faults than one in this number of bytes are of memory not yet touched.
constexpr std::uint64_t kBytesOfAFault = 4 * kMiB;
/// In place of a GPU, in what could not be made ready: what all routes need.
constexpr int kAllRoutes = -1;

/// The end of a transfer that is memory of the host.
HostSide host_side(const ResolvedTransfer& ends) {
  const CUdeviceptr host = ends.request.src.is_host() ? ends.transfer.src : ends.transfer.dst;
  return {reinterpret_cast<std::byte*>(host), {}};
}

}  // namespace

PageablePlan TransferDispatcher::pageable_plan(const Request& request) {
  const Request rated{.src = request.src, .dst = request.dst, .bytes = kRatedBytes};
  const auto pinned = planner_.plan({&rated, 1}, 0);
  return make_pageable_plan(node(), request, pinned->plan.transfers.front(), pageable_.threads());
}

std::uint64_t TransferDispatcher::min_pageable_bytes(bool is_to_gpu) {
  std::uint64_t least = UINT64_MAX;
  if (pageable_.threads() < 2 || node().hosts.empty()) return least;
  for (std::size_t g = 0; g < node().gpus.size(); ++g) {
    const MemoryId gpu = MemoryId::gpu(static_cast<int>(g));
    const MemoryId host = MemoryId::host(node().gpus[g].numa);
    const Request rated{is_to_gpu ? host : gpu, is_to_gpu ? gpu : host, kRatedBytes};
    const auto pinned = planner_.plan({&rated, 1}, 0);
    const std::uint64_t bytes =
        smallest_pageable(node(), rated, pinned->plan.transfers.front(), pageable_.threads());
    if (bytes != 0) least = std::min(least, bytes);
  }
  return std::max(least, never_split_below_);
}

PageableLimits TransferDispatcher::pageable_limits() const noexcept {
  return {min_pageable_to_gpu_.load(std::memory_order_relaxed),
          min_pageable_from_gpu_.load(std::memory_order_relaxed)};
}

void TransferDispatcher::find_pageable_limits() {
  // In virtual time nothing may depend on when a background task ends.
  if (source_.virtual_time || finds_pageable_limits_.exchange(true)) return;
  static_cast<void>(planning_.add([this] {
    const auto find = [this](bool is_to_gpu, std::atomic<std::uint64_t>& least) {
      const std::uint64_t bytes = min_pageable_bytes(is_to_gpu);
      least = bytes == UINT64_MAX ? 0 : bytes;
    };
    find(true, min_pageable_to_gpu_);
    find(false, min_pageable_from_gpu_);
  }));
}

void TransferDispatcher::prepare_pageable_now(const PageablePlan& plan) {
  if (plan.native()) return;
  for (std::size_t r = 0; r < plan.routes().size(); ++r) prepare_route_now(plan, r);
}

void TransferDispatcher::prepare_route_now(const PageablePlan& plan, std::size_t route) {
  if (pageable_.is_ready(plan, route)) return;
  const RelaxedCapture relaxed(driver());
  const Route& taken = plan.routes()[route].route;
  const int key = taken.staged() ? taken.via.index : kAllRoutes;
  try {
    pageable_.prepare(plan, route);
    const std::lock_guard lock(pageable_mutex_);
    unprepared_.erase(key);
  } catch (const std::exception& error) {
    log_info("pageable memory is not copied {}: {}", to_string(taken), error.what());
    const std::lock_guard lock(pageable_mutex_);
    const auto [known, is_new] = unprepared_.try_emplace(key);
    if (!is_new) known->second.failed();
  }
}

void TransferDispatcher::prepare_pageable(const Request& request) {
  const int gpu = request.src.is_gpu() ? request.src.index : request.dst.index;
  devices_.context_for_program(gpu);
  prepare_pageable_now(pageable_plan(request));
}

void TransferDispatcher::prepare_pageable(const PageablePlan& plan) {
  if (options_.prepare == PrepareMode::wait) return prepare_pageable_now(plan);
  {
    const std::lock_guard lock(pageable_mutex_);
    if (prepares_pageable_) return;
    prepares_pageable_ = true;
  }
  const auto prepare = [this, plan] {
    prepare_pageable_now(plan);
    const std::lock_guard lock(pageable_mutex_);
    prepares_pageable_ = false;
  };
  if (planning_.add(prepare)) return;
  const std::lock_guard lock(pageable_mutex_);
  prepares_pageable_ = false;
}

bool TransferDispatcher::all_pageable_ready(const PageablePlan& plan,
                                            const std::vector<SplittableTransfer>& transfers,
                                            const LoadLook& look, bool waits_for_link,
                                            Exclusions& without) {
  const SplittableTransfer& transfer = transfers.front();
  const auto reaches_all = [&](int gpu) {
    return std::ranges::all_of(transfers, [&](const SplittableTransfer& each) {
      return each.dst_access.possible(driver(), gpu);
    });
  };
  const auto obtains_all = [&](int gpu, double saved_us) {
    return std::ranges::all_of(transfers, [&](const SplittableTransfer& each) {
      return each.dst_access.obtain(driver(), gpu, saved_us);
    });
  };
  const bool is_to_gpu = transfer.request.src.is_host();
  const int staged = static_cast<int>(std::ranges::count_if(
      plan.routes(), [](const RouteShare& share) { return share.route.staged(); }));
  const Tolerance allowed = tolerance(plan.plan.predicted_us, plan.plan.native_us, staged);
  bool is_ready = true;
  bool is_asked = false;
  const auto becomes_ready = [&](std::size_t r) {
    if (pageable_.is_ready(plan, r)) return true;
    if (waits_for_link && !plan.routes()[r].route.staged())
      prepare_route_now(plan, r);
    else if (!std::exchange(is_asked, true))
      prepare_pageable(plan);
    return pageable_.is_ready(plan, r);
  };
  for (std::size_t r = 0; r < plan.routes().size(); ++r) {
    const Route& route = plan.routes()[r].route;
    const auto leave_out = [&](ExclusionReason why, NativeReason native) {
      is_ready = false;
      if (route.staged()) {
        exclude(route, why, native, without);
      } else {
        without.reason = native;
        without.memories = ~std::uint64_t{0};
      }
    };
    const bool is_failed = [&] {
      const std::lock_guard lock(pageable_mutex_);
      const auto known = unprepared_.find(route.staged() ? route.via.index : kAllRoutes);
      return known != unprepared_.end() && !known->second.due();
    }();
    if (is_failed || (route.staged() && devices_.has_failed(route.via.index))) {
      leave_out(ExclusionReason::failed, NativeReason::not_ready);
    } else if (is_to_gpu &&
               !reaches_all(route.staged() ? route.via.index : transfer.request.dst.index)) {
      leave_out(ExclusionReason::unreachable, NativeReason::unreachable);
    } else if (!becomes_ready(r)) {
      without.is_preparing = true;
      leave_out(ExclusionReason::not_ready, NativeReason::not_ready);
    } else if (is_to_gpu &&
               !obtains_all(route.staged() ? route.via.index : transfer.request.dst.index,
                            (plan.plan.native_us - plan.plan.predicted_us) / std::max(1, staged))) {
      leave_out(ExclusionReason::unreachable, NativeReason::unreachable);
    } else if (route.staged() && load_.is_on() && load_.is_loaded(route, allowed, look)) {
      without.is_changed_by_load = true;
      leave_out(ExclusionReason::loaded, NativeReason::links_loaded);
    }
  }
  return is_ready;
}

TransferDispatcher::PageablePlanPtr TransferDispatcher::plan_by_threads(const Request& request,
                                                                        bool is_file,
                                                                        std::uint64_t without,
                                                                        bool waits) {
  const std::tuple key{request.src, request.dst, request.bytes, is_file, without};
  {
    const std::lock_guard lock(pageable_mutex_);
    if (const auto known = pageable_plans_.find(key); known != pageable_plans_.end())
      return known->second;
  }
  const Request rated{.src = request.src, .dst = request.dst, .bytes = kRatedBytes};
  const auto pinned =
      waits ? planner_.plan({&rated, 1}, without) : planner_.serve({&rated, 1}, without);
  if (pinned->provisional) return nullptr;
  auto plan = std::make_shared<const PageablePlan>(make_pageable_plan(
      node(), request, pinned->plan.transfers.front(), pageable_.threads(), is_file));
  const std::lock_guard lock(pageable_mutex_);
  if (pageable_plans_.size() >= kMaxPageablePlans) pageable_plans_.clear();
  pageable_plans_.emplace(key, plan);
  return plan;
}

void TransferDispatcher::forget_pageable_plans() {
  const std::lock_guard lock(pageable_mutex_);
  pageable_plans_.clear();
  min_pageable_to_gpu_ = 0;
  min_pageable_from_gpu_ = 0;
  finds_pageable_limits_ = false;
}

bool TransferDispatcher::may_try_threads(const Request& request) {
  const std::lock_guard lock(pageable_mutex_);
  const auto slow = slow_threads_.find(PageableClass(request));
  return slow == slow_threads_.end() || slow->second.due();
}

void TransferDispatcher::note_threads(const Request& request, const PageableResult& result,
                                      double native_us) {
  // Copies of a simulated node take none of its time, where that is not virtual.
  if (source_.simulated && !source_.virtual_time) return;
  // Where pages are touched for the first time the driver is slower than was measured, too.
  if (result.page_faults > request.bytes / kBytesOfAFault) return;
  const std::lock_guard lock(pageable_mutex_);
  if (result.threads_us <= fastest_native_us(request, native_us)) {
    slow_threads_.erase(PageableClass(request));
    return;
  }
  const auto [slow, is_new] = slow_threads_.try_emplace(PageableClass(request));
  if (!is_new) slow->second.failed();
}

std::optional<NativeReason> TransferDispatcher::classify_pageable(
    std::span<const ResolvedTransfer> ends, std::vector<SplittableTransfer>& transfers) {
  for (const ResolvedTransfer& each : ends) {
    if (pageable_.threads() < 2 || each.dst.import != nullptr || each.src.import != nullptr)
      return NativeReason::pageable;
    auto classified = classifier_.splittable(each);
    if (const auto* const reason = std::get_if<NativeReason>(&classified)) return *reason;
    transfers.push_back(std::get<SplittableTransfer>(std::move(classified)));
  }
  return std::nullopt;
}

std::optional<NativeReason> TransferDispatcher::try_by_threads(
    std::span<const ResolvedTransfer> ends, const HostSide& host,
    std::map<int, std::uint64_t>* parts, ThreadCopy& how, bool& midway) {
  std::vector<SplittableTransfer> transfers;
  if (const auto reason = classify_pageable(ends, transfers)) return reason;
  const SplittableTransfer& transfer = transfers.front();
  const Request& request = transfer.request;
  const bool is_to_gpu = request.src.is_host();
  const int gpu = is_to_gpu ? request.dst.index : request.src.index;
  const Access& access = is_to_gpu ? transfer.dst_access : transfer.src_access;
  if (!access.granted(driver(), gpu)) return NativeReason::unreachable;

  const RelaxedCapture relaxed(driver());
  PageablePlanPtr served = plan_by_threads(request, host.is_file(), 0, how.waits_for_link);
  if (served == nullptr) return NativeReason::not_ready;
  if (served->native()) {
    find_pageable_limits();
    return NativeReason::no_gain;
  }
  const Surroundings around = look_around(transfers);
  const LoadLook& look = around.look;
  Exclusions without;
  PageablePlan plan;
  const bool may_try = host.is_file() || may_try_threads(request);
  do {
    if (without.memories == ~std::uint64_t{0}) return without.reason;
    if (without.memories != 0)
      served = plan_by_threads(request, host.is_file(), without.memories, how.waits_for_link);
    if (served == nullptr) return NativeReason::not_ready;
    plan = *served;
    if (plan.native()) return without.reason;
    if (!may_try) return NativeReason::threads_slow;
    for (const SplittableTransfer& each : std::span(transfers).subspan(1))
      plan.further_gpus.push_back(each.request.dst.index);
    if (!devices_.alive(plan.plan)) return NativeReason::context_reset;
  } while (!all_pageable_ready(plan, transfers, look, how.waits_for_link, without));
  how.lacks_routes = without.is_preparing;

  others_.started(request, plan.plan.predicted_us);
  for (std::size_t i = 0; i < transfers.size(); ++i) note_plan(around, i, plan.plan);
  LoadMonitor::OwnIssue issue(load_, plan.plan, look.first_stream());
  PageableTransfer what;
  what.device = is_to_gpu ? transfer.transfer.dst : transfer.transfer.src;
  what.host = host;
  what.bytes = request.bytes;
  what.is_to_gpu = is_to_gpu;
  what.is_further_part = how.is_further_part;
  what.gpu = gpu;
  what.caller = transfer.caller;
  what.caller_gpu = transfer.caller_gpu;
  for (const SplittableTransfer& each : std::span(transfers).subspan(1))
    what.further.push_back({.device = each.transfer.dst,
                            .gpu = each.request.dst.index,
                            .caller = each.caller,
                            .caller_gpu = each.caller_gpu});
  const PageableResult result = pageable_.run(what, plan);
  issue.end(false);
  for (const SplittableTransfer& each : transfers) resources_.sequences().end(each.caller);
  if (without.is_changed_by_load) counters_.count_changed_by_load();
  if (result.is_done) {
    if (parts == nullptr) {
      if (!host.is_file()) note_threads(request, result, plan.plan.native_us);
      counters_.count_pageable(plan.plan.transfers.front(), result.route_bytes, result.route_chunks,
                               host.is_file(), how.is_further_part);
      return std::nullopt;
    }
    for (std::size_t r = 0; r < plan.routes().size(); ++r) {
      const Route& route = plan.routes()[r].route;
      (*parts)[route.staged() ? route.via.index : gpu] += result.route_bytes[r];
    }
    return std::nullopt;
  }
  midway = !result.is_ordered && !devices_.any_reset();
  if (result.has_faulted) {
    log_info("native copy instead: pageable memory could not be read or written");
    return NativeReason::pageable;
  }
  if (midway && result.error != nullptr) std::rethrow_exception(result.error);
  if (result.error != nullptr) {
    try {
      std::rethrow_exception(result.error);
    } catch (const FileError&) {
      throw;
    } catch (const std::exception& error) {
      log_info("native copy instead: {}", error.what());
    }
  }
  return NativeReason::driver_error;
}

std::optional<NativeReason> TransferDispatcher::copy_pageable(const ResolvedTransfer& ends,
                                                              bool& midway) {
  ThreadCopy how;
  return copy_by_threads(ends, host_side(ends), how, midway);
}

std::optional<NativeReason> TransferDispatcher::copy_by_threads(const ResolvedTransfer& ends,
                                                                const HostSide& host,
                                                                ThreadCopy& how, bool& midway) {
  try {
    return try_by_threads({&ends, 1}, host, nullptr, how, midway);
  } catch (const FileError&) {
    throw;
  } catch (const std::exception& error) {
    if (midway) throw;
    log_info("native copy instead: {}", error.what());
    return NativeReason::driver_error;
  }
}

std::optional<NativeReason> TransferDispatcher::spread_pageable(
    std::span<const ResolvedTransfer> ends, std::map<int, std::uint64_t>& parts, bool& midway) {
  ThreadCopy how;
  try {
    return try_by_threads(ends, host_side(ends.front()), &parts, how, midway);
  } catch (const std::exception& error) {
    if (midway) throw;
    log_info("as many copies instead: {}", error.what());
    return NativeReason::driver_error;
  }
}

void TransferDispatcher::prepare_pageable_spread(MemoryId src, const std::vector<int>& gpus) {
  const Request request{.src = src, .dst = MemoryId::gpu(gpus.front()), .bytes = kRatedBytes};
  PageablePlan plan = pageable_plan(request);
  plan.further_gpus.assign(gpus.begin() + 1, gpus.end());
  for (const int gpu : gpus) devices_.context_for_program(gpu);
  prepare_pageable_now(plan);
}

}  // namespace polypath
