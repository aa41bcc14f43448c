#include "core/transfer_dispatcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/cpus.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {
namespace {

/// Forking and joining a staged route alone takes as long as the native copy of this many bytes;
/// looking for a plan would only delay it.
constexpr std::uint64_t kNeverSplitBelow = 256 * kKiB;
/// Rings of a route with which one transfer of a sequence starts while the last one ends.
constexpr int kWideInSequence = 2;
/// Plans that wait for being computed in the background.
constexpr std::size_t kMaxPlansWaiting = 256;

/// A part of the native copies' time. Two GPUs both ways by separate calls of 256 MiB took 1.27
/// times as long as native copies on 4 x H200, where the plan gained 8 %.
constexpr double kUnsureGain = 0.1;

/// Unless the setting names more: beyond them the links are full.
constexpr int kMaxCopyThreads = 16;

PlanOptions plan_options(const Options& options, const RingLimits& rings) {
  PlanOptions plan;
  plan.filter.direct = options.direct_routes;
  plan.filter.gpu = options.gpu_routes;
  plan.filter.host = options.host_routes;
  // A program that says how many routes it wants gets them.
  plan.filter.ranks = options.max_routes == 0 ? ranks_on_this_machine() : 1;
  plan.max_routes = options.max_routes;
  plan.min_bytes = options.min_size;
  plan.chunks.chunk_bytes = options.chunk_size;
  plan.chunks.chunks = options.chunks;
  plan.chunks.rings = rings;
  return plan;
}

/// In a window what else is under way comes first, which select_variant() asks.
bool is_native_on_idle_stream(const PreparedPlan& plan) {
  return plan.on_idle_stream != nullptr && plan.on_idle_stream->plan.native() &&
         plan.in_window == nullptr;
}

/// What each staged route of the plan saves, on average.
double saved_by_route(const Plan& plan) {
  std::ptrdiff_t staged = 0;
  for (const TransferPlan& transfer : plan.transfers)
    staged += std::ranges::count_if(transfer.routes,
                                    [](const RouteShare& share) { return share.route.staged(); });
  return staged == 0 ? 0 : (plan.native_us - plan.predicted_us) / static_cast<double>(staged);
}

int copy_threads(const Options& options, const NodeSource& source) {
  // The direct route alone is the driver's copy.
  if (!options.gpu_routes && !options.host_routes) return 1;
  if (options.copy_threads > 0) return options.copy_threads;
  // A simulated node has the CPUs of its kind.
  if (source.virtual_time) return kMaxCopyThreads;
  return std::clamp(usable_cpus() / ranks_on_this_machine(), 1, kMaxCopyThreads);
}

}  // namespace

TransferDispatcher::TransferDispatcher(const NodeSource& source, const Options& options,
                                       Devices& devices, ImportedMemories& imports,
                                       SharedMappings& shared, PeerProcesses& others,
                                       Counters& counters)
    : source_(source),
      options_(options),
      never_split_below_(std::max(kNeverSplitBelow, options.min_size)),
      devices_(devices),
      imports_(imports),
      others_(others),
      counters_(counters),
      classifier_(source, devices, imports, shared, never_split_below_),
      resources_(source.driver, source.node, devices, options.staging_size),
      load_(source, options, devices, imports, resources_, others),
      own_(source.node),
      planner_(
          {source.node, plan_options(options, resources_.ring_limits()), options.executor,
           source.tables.table<TunedTransfer>().entries()},
          options.prepare == PrepareMode::wait
              ? Planner::Later{}
              : [this](std::function<void()> task) { return planning_.add(std::move(task)); }),
      streams_(source.driver, resources_),
      graphs_(source.driver, resources_, streams_, options.graph_cache_size),
      pageable_(source.driver, devices, source.node, resources_.events(),
                copy_threads(options, source), source.virtual_time),
      preparer_(*source.driver, resources_, imports, options.prepare_threads, &load_),
      planning_(kMaxPlansWaiting) {}

void TransferDispatcher::wait_prepared() {
  planning_.wait();
  preparer_.wait();
}

TransferDispatcher::~TransferDispatcher() {
  if (devices_.any_reset()) graphs_.abandon();
}

// ---- what a transfer is -------------------------------------------------------------------------

std::variant<SplittableTransfer, NativeReason> TransferDispatcher::classify(
    const Transfer& transfer, const PreparedPlan* prepared_plan, PlanPtr* served,
    std::optional<ResolvedTransfer>& pageable) {
  try {
    EndInfos infos;
    const auto ends = classifier_.ends_of(transfer, infos, pageable_limits());
    load_.note_memory(transfer.src, infos.src);
    load_.note_memory(transfer.dst, infos.dst);
    if (const auto* const reason = std::get_if<NativeReason>(&ends)) return *reason;
    if (devices_.lost()) return NativeReason::context_reset;
    const ResolvedTransfer& between = std::get<ResolvedTransfer>(ends);
    if (between.is_pageable) {
      pageable = between;
      return NativeReason::pageable;
    }
    bool is_provisional = false;
    if (served != nullptr && prepared_plan != nullptr) {
      if (prepared_plan->plan.native()) return NativeReason::no_gain;
    } else if (served != nullptr) {
      *served = planner_.serve({&between.request, 1}, 0);
      const bool is_native = (*served)->plan.native();
      is_provisional = is_native && (*served)->provisional;
      if (is_native && !is_provisional) return NativeReason::no_gain;
      // Decided before anything that would delay the native copy.
      if (load_.is_on() && is_native_on_idle_stream(**served) &&
          !load_.is_occupied_by_own(between.request.src, between.request.dst))
        return NativeReason::no_gain;
    }
    auto classified = classifier_.splittable(between);
    const auto* const splittable = std::get_if<SplittableTransfer>(&classified);
    if (splittable == nullptr) return classified;
    if (!is_provisional) return classified;
    prepare_later({*splittable});
    return NativeReason::not_ready;
  } catch (const DriverError& error) {
    log_info("native copy instead: {}", error.what());
    return NativeReason::driver_error;
  }
}

// ---- the native copy ----------------------------------------------------------------------------

void TransferDispatcher::native_copy(const Transfer& transfer, NativeReason reason) {
  note_native(transfer, reason);
  const CUresult result =
      driver().memcpy_async(transfer.dst, transfer.src, transfer.bytes, transfer.stream);
  if (result != CUDA_SUCCESS) [[unlikely]] {
    const std::string message =
        fmt::format("cuMemcpyAsync failed: {}; dst {}, src {}", describe(driver(), result),
                    allocation_text(driver(), transfer.dst, transfer.bytes),
                    allocation_text(driver(), transfer.src, transfer.bytes));
    if (result == CUDA_ERROR_INVALID_VALUE) throw InvalidArgument(message);
    throw DriverError(message, static_cast<int>(result));
  }
  count_native(transfer, reason);
}

void TransferDispatcher::decline(const Transfer& transfer, NativeReason reason) {
  note_native(transfer, reason);
  count_native(transfer, reason);
}

void TransferDispatcher::note_native(const Transfer& transfer, NativeReason reason) {
  if (reason != NativeReason::capturing)
    load_.note_copy(transfer.dst, transfer.src, transfer.bytes, transfer.stream);
}

void TransferDispatcher::count_native(const Transfer& transfer, NativeReason reason) {
  // The next transfer there waits for this one.
  resources_.sequences().end(transfer.stream);
  counters_.count_native(reason, transfer.bytes);
}

void TransferDispatcher::native_copy_in_its_context(const Transfer& transfer, NativeReason reason) {
  std::optional<ContextGuard> guard;
  try {
    guard.emplace(driver());
    CUcontext context = guard->saved();
    if (!is_special_stream(transfer.stream))
      POLYPATH_CHECK(driver(), stream_get_ctx(transfer.stream, &context));
    guard->use(context);
  } catch (const DriverError& error) {
    log_info("a native copy is issued in another context than its stream's: {}", error.what());
  }
  native_copy(transfer, reason);
}

// ---- what is ready, and what is not -------------------------------------------------------------

void TransferDispatcher::exclude(const Route& route, ExclusionReason why, NativeReason native,
                                 Exclusions& without) {
  without.memories |= planner_.bit(route.via);
  without.reason = native;
  counters_.count_left_out(why);
}

TransferDispatcher::AccessState TransferDispatcher::reach(const Route& route,
                                                          const SplittableTransfer& transfer,
                                                          bool asks, double saved_us) {
  AccessState reach = AccessState::yes;
  const int first = resources_.issuer(route.legs.front());
  const int last = resources_.issuer(route.legs.back());
  // Access is given to GPUs that copy at once: others may never be ready.
  const bool is_ready = resources_.ready(route);
  const auto is_reached = [&](const Access& access, int gpu) {
    return is_ready ? access.obtain(driver(), gpu, saved_us) : access.possible(driver(), gpu);
  };
  if (!is_reached(transfer.src_access, first) || !is_reached(transfer.dst_access, last))
    return AccessState::denied;
  const auto consider = [&](const std::shared_ptr<ImportedMemory>& memory, int gpu) {
    if (memory == nullptr ||
        memory->address_in(gpu, devices_.context_if_active(gpu), memory->start()))
      return;
    reach = std::max(reach, memory->failed(gpu) ? AccessState::failed : AccessState::not_yet);
    if (asks) preparer_.request(memory, gpu);
  };
  consider(transfer.src_import, first);
  consider(transfer.dst_import, last);
  return reach;
}

RouteEnds TransferDispatcher::ends_of(const Route& route, const SplittableTransfer& transfer) {
  const auto seen_by = [&](const std::shared_ptr<ImportedMemory>& memory, CUdeviceptr address,
                           int leg) {
    const int gpu = resources_.issuer(leg);
    if (memory == nullptr) return address;
    // The program closes it while it copies: the driver would refuse that copy as well.
    return memory->address_in(gpu, devices_.context(gpu), address).value_or(address);
  };
  return {seen_by(transfer.dst_import, transfer.transfer.dst, route.legs.back()),
          seen_by(transfer.src_import, transfer.transfer.src, route.legs.front())};
}

void TransferDispatcher::note_import(const SplittableTransfer& transfer) {
  const auto note = [&](const auto& memory, std::atomic<std::uint64_t>& largest) {
    if (memory != nullptr && largest < transfer.transfer.bytes) largest = transfer.transfer.bytes;
  };
  note(transfer.src_import, largest_from_import_);
  note(transfer.dst_import, largest_to_import_);
}

bool TransferDispatcher::all_ready(const Plan& plan, const std::vector<SplittableTransfer>& group,
                                   Exclusions& without) {
  bool ready = true;
  const bool asks = !without.is_preparing;
  const double saved_us = saved_by_route(plan);
  std::vector<const Route*> routes;
  for (std::size_t t = 0; t < group.size(); ++t) {
    if (!plan.transfers[t].native()) note_import(group[t]);
    for (const RouteShare& share : plan.transfers[t].routes) {
      if (!share.route.staged()) continue;
      bool failed = false;
      bool waits = false;
      if (resources_.has_failed_gpu(share.route)) {
        ready = false;
        exclude(share.route, ExclusionReason::failed, NativeReason::not_ready, without);
        continue;
      }
      switch (reach(share.route, group[t], asks, saved_us)) {
        case AccessState::yes: break;
        case AccessState::not_yet: waits = true; break;
        case AccessState::failed: failed = true; break;
        case AccessState::denied:
          ready = false;
          exclude(share.route, ExclusionReason::unreachable, NativeReason::unreachable, without);
          continue;
      }
      if (!resources_.ready(share.route)) {
        failed = preparer_.failed(share.route) || failed;
        waits = true;
        if (asks) routes.push_back(&share.route);
      }
      if (!failed && !waits) continue;
      ready = false;
      without.is_preparing = without.is_preparing || !failed;
      exclude(share.route, failed ? ExclusionReason::failed : ExclusionReason::not_ready,
              NativeReason::not_ready, without);
    }
  }
  // First the routes that wait for no context: a thread that creates one does nothing else
  // meanwhile.
  std::ranges::stable_partition(routes, [&](const Route* route) {
    return std::ranges::all_of(resources_.gpus_of(*route),
                               [&](int gpu) { return gpu < 0 || resources_.has_context(gpu); });
  });
  for (const Route* const route : routes) preparer_.request(*route, 1);
  return ready;
}

// ---- the split transfer -------------------------------------------------------------------------

std::vector<BoundTransfer> TransferDispatcher::bind(const Plan& plan,
                                                    const std::vector<SplittableTransfer>& group) {
  std::vector<BoundTransfer> bound(group.size());
  for (std::size_t t = 0; t < group.size(); ++t) {
    bound[t].dst = group[t].transfer.dst;
    bound[t].src = group[t].transfer.src;
    bound[t].caller = group[t].caller;
    bound[t].caller_gpu = group[t].caller_gpu;
    bound[t].dst_buffer = group[t].dst_buffer;
    bound[t].src_buffer = group[t].src_buffer;
    bound[t].follows = group[t].transfer.follows && !group[t].may_have_aliases;
    for (const RouteShare& share : plan.transfers[t].routes)
      bound[t].ends.push_back(share.route.staged() ? ends_of(share.route, group[t]) : RouteEnds{});
  }
  return bound;
}

bool TransferDispatcher::is_used_by_another(const TransferPlan& transfer,
                                            const CallerStream& caller) {
  return std::ranges::any_of(transfer.routes, [&](const RouteShare& share) {
    return share.route.staged() && resources_.used_by_another(share.route, caller);
  });
}

bool TransferDispatcher::in_window(const PreparedPlan& prepared,
                                   const SplittableTransfer& transfer) {
  const RelaxedCapture relaxed(driver());
  return is_used_by_another(prepared.plan.transfers.front(), transfer.caller) ||
         is_used_by_another(prepared.in_window->plan.transfers.front(), transfer.caller);
}

bool TransferDispatcher::idle(CUstream stream) {
  const RelaxedCapture relaxed(driver());
  return driver().stream_query(stream) == CUDA_SUCCESS;
}

Surroundings TransferDispatcher::look_around(std::span<const SplittableTransfer> transfers,
                                             const Plan* alone) {
  std::vector<Request> requests;
  std::vector<std::uintptr_t> streams;
  for (const SplittableTransfer& each : transfers) {
    requests.push_back(each.request);
    streams.push_back(LoadMonitor::stream_key(each.transfer.stream, each.caller_gpu));
  }
  return look_around(requests, streams, alone);
}

Surroundings TransferDispatcher::look_around(std::span<const Request> requests,
                                             std::span<const std::uintptr_t> streams,
                                             const Plan* alone) {
  Surroundings around;
  const auto leave_out_own = [&](std::vector<Request>& pairs) {
    std::erase_if(pairs, [&](const Request& other) {
      return std::ranges::any_of(requests, [&](const Request& request) {
        return request.src == other.src && request.dst == other.dst;
      });
    });
    sort_pairs(pairs);
  };
  std::vector<GpuLoad> loads;
  others_.add_pairs_in_use(around.concurrent, &loads);
  if (load_.is_on()) {
    load_.look(around.look);
    around.look.streams.assign(streams.begin(), streams.end());
    load_.add_others(around.look, loads);
    OwnTransfers::Start& own =
        around.own.emplace(own_.begin(requests, streams, around.look.now_ns, alone));
    leave_out_own(own.concurrent);
    leave_out_own(own.by_thread);
    around.concurrent.insert(around.concurrent.end(), own.concurrent.begin(), own.concurrent.end());
  }
  leave_out_own(around.concurrent);
  return around;
}

void TransferDispatcher::note_plan(const Surroundings& around, std::size_t first,
                                   const Plan& plan) {
  if (around.own) own_.set_plan(*around.own, first, plan);
}

bool TransferDispatcher::gains_too_little(const Plan& plan, const Surroundings& around) const {
  if (!around.own || around.own->concurrent.empty()) return false;
  // The last call of a thread begins when its others are issued.
  const auto before = static_cast<double>(around.own->by_thread.size());
  const double delay_us = std::max(before * load_.issue_us(plan), kUnsureGain * plan.native_us) -
                          static_cast<double>(around.own->lead_ns) / 1e3;
  return plan.native_us - plan.predicted_us < delay_us;
}

bool TransferDispatcher::leave_out_loaded(const Plan& plan, const LoadLook& look,
                                          Exclusions& without) {
  int staged = 0;
  for (const TransferPlan& transfer : plan.transfers)
    staged += static_cast<int>(std::ranges::count_if(
        transfer.routes, [](const RouteShare& share) { return share.route.staged(); }));
  const Tolerance allowed = tolerance(plan.predicted_us, plan.native_us, staged);
  bool is_any = false;
  for (const TransferPlan& transfer : plan.transfers) {
    for (const RouteShare& share : transfer.routes) {
      if (!share.route.staged() || !load_.is_loaded(share.route, allowed, look)) continue;
      is_any = without.is_changed_by_load = true;
      exclude(share.route, ExclusionReason::loaded, NativeReason::links_loaded, without);
    }
  }
  return is_any;
}

void TransferDispatcher::widen(const Route& route, int copies) {
  preparer_.request(route, copies);
  if (options_.prepare == PrepareMode::wait) preparer_.wait();
}

bool TransferDispatcher::try_plan(const PreparedPlan& prepared,
                                  const std::vector<SplittableTransfer>& group,
                                  const LoadLook& look, bool follows_load, Exclusions& without,
                                  bool& midway) {
  const auto natively = [&] {
    without.reason =
        devices_.any_reset() ? NativeReason::context_reset : NativeReason::driver_error;
    without.memories = ~std::uint64_t{0};
    return false;
  };
  const auto give_up = [&](const std::exception& error) {
    log_info("native copy instead: {}", error.what());
    return natively();
  };
  const RelaxedCapture relaxed(driver());
  std::vector<BoundTransfer> bound;
  std::vector<std::size_t> sampled;
  try {
    if (!devices_.alive(prepared.plan)) return natively();
    if (!all_ready(prepared.plan, group, without)) return false;
    if (follows_load && leave_out_loaded(prepared.plan, look, without)) return false;
    bound = bind(prepared.plan, group);
    for (std::size_t t = 0; follows_load && t < bound.size(); ++t) {
      const TransferPlan& plan = prepared.plan.transfers[t];
      // Next to others of this process it would say little.
      if (!load_.is_due_for_sample(plan, sampled.size(), look.now_ns) ||
          is_used_by_another(plan, group[t].caller))
        continue;
      sampled.push_back(t);
      bound[t].sample = load_.sample(plan, bound[t].caller_gpu, look.now_ns);
    }
  } catch (const std::exception& error) {
    return give_up(error);
  }
  LoadMonitor::OwnIssue issue(load_, prepared.plan, look.first_stream());
  Executor& executor = prepared.executor == ExecutorKind::graph ? static_cast<Executor&>(graphs_)
                                                                : static_cast<Executor&>(streams_);
  const RunResult result = executor.run(prepared.schedule, bound);
  issue.end(result.issued);
  if (result.busy != nullptr) {
    if (const auto more = resources_.next_size(*result.busy)) widen(*result.busy, *more);
    exclude(*result.busy, ExclusionReason::busy, NativeReason::busy, without);
    // Over its other routes it would fill the caller's stream before native copies do.
    if (result.is_filled && group.size() == 1) without.memories = ~std::uint64_t{0};
    return false;
  }
  if (result.error != nullptr) {
    midway = result.issued && !result.is_ordered;
    if (midway) std::rethrow_exception(result.error);
    // An error of a leg is the route's: a native copy of all, after what was issued, is the same.
    try {
      std::rethrow_exception(result.error);
    } catch (const std::exception& error) {
      return give_up(error);
    }
  }
  try {
    counters_.count_split(prepared.schedule, result.followed);
    for (const std::size_t t : sampled)
      if (bound[t].sample != nullptr)
        load_.keep(bound[t].sample, prepared.plan, t, look, issue.begun_ns());
    if (follows_load) {
      load_.note_split(prepared.plan, look);
      load_.look_after_issue();
    }
    if (result.narrow != nullptr) {
      const auto more = resources_.next_size(*result.narrow);
      if (more && *more <= kWideInSequence) widen(*result.narrow, *more);
    }
  } catch (const std::exception& error) {
    log_warn("a transfer is under way that was not taken note of: {}", error.what());
  }
  return true;
}

const PreparedPlan& TransferDispatcher::select_variant(const PreparedPlan& plan,
                                                       const SplittableTransfer& first) {
  if (plan.in_sequence != nullptr && first.transfer.follows &&
      resources_.sequences().last_was(first.caller, first.request) && !idle(first.transfer.stream))
    return *plan.in_sequence;
  if (plan.in_window != nullptr && in_window(plan, first)) return *plan.in_window;
  if (plan.on_idle_stream != nullptr && idle(first.transfer.stream)) return *plan.on_idle_stream;
  return plan;
}

std::optional<NativeReason> TransferDispatcher::split(const std::vector<SplittableTransfer>& group,
                                                      const PreparedPlan* prepared, PlanPtr served,
                                                      bool& midway) {
  try {
    return follow_plans(group, prepared, std::move(served), midway);
  } catch (const std::exception& error) {
    if (midway) throw;
    log_warn("native copy instead: {}", error.what());
    return NativeReason::driver_error;
  }
}

std::optional<NativeReason> TransferDispatcher::follow_plans(
    const std::vector<SplittableTransfer>& group, const PreparedPlan* prepared_plan, PlanPtr served,
    bool& midway) {
  Exclusions without;
  std::vector<Request> requests;
  for (const SplittableTransfer& transfer : group) requests.push_back(transfer.request);
  const Surroundings around = look_around(group, served != nullptr ? &served->plan : nullptr);
  auto tell_others = [&, is_told = false](double predicted_us) mutable {
    if (std::exchange(is_told, true)) return;
    for (const Request& request : requests) others_.started(request, predicted_us);
  };
  const auto count_load = [&] {
    if (without.is_changed_by_load) counters_.count_changed_by_load();
  };
  // A given plan is for just these transfers, with all their routes.
  if (prepared_plan != nullptr && prepared_plan->plan.transfers.size() != group.size())
    prepared_plan = nullptr;
  if (!around.concurrent.empty()) served = nullptr;  // it is the plan of the group alone
  // Each round leaves out at least one staging memory more, until the plan is native.
  for (;; prepared_plan = nullptr) {
    PlanPtr planned = std::exchange(served, nullptr);
    if (prepared_plan == nullptr && planned == nullptr)
      planned = planner_.serve(requests, without.memories, around.concurrent);
    const PreparedPlan& prepared =
        select_variant(prepared_plan != nullptr ? *prepared_plan : *planned, group.front());
    // The way back takes links as well, however it is planned.
    const bool is_loss = (!prepared.tuned && group.front().transfer.is_exchange &&
                          !pays_under_contention(prepared.plan)) ||
                         (prepared_plan == nullptr && gains_too_little(prepared.plan, around));
    if (prepared.plan.native() || is_loss) {
      if (prepared.provisional && without.reason == NativeReason::no_gain) {
        without.reason = NativeReason::not_ready;
        if (prepared.plan.native()) prepare_later(group);
      }
      if (!around.concurrent.empty() && without.reason == NativeReason::no_gain)
        without.reason = NativeReason::links_in_use;
      if (around.own) own_.set_native(*around.own, without.reason == NativeReason::links_in_use);
      tell_others(prepared.plan.native_us);
      count_load();
      return without.reason;
    }
    if (options_.prepare == PrepareMode::wait) prepare_now(prepared.plan, group);
    // Before it is issued, which takes long enough for another process to plan the way back.
    tell_others(prepared.plan.predicted_us);
    note_plan(around, 0, prepared.plan);
    const bool follows_load = load_.is_on() && prepared_plan == nullptr;
    if (try_plan(prepared, group, around.look, follows_load, without, midway)) {
      count_load();
      for (std::size_t t = 0; t < group.size(); ++t)
        if (prepared.plan.transfers[t].native())
          counters_.count_native(NativeReason::no_gain, requests[t].bytes);
      return std::nullopt;
    }
  }
}

std::optional<NativeReason> TransferDispatcher::issue(const Transfer& transfer,
                                                      const PreparedPlan* prepared, bool& midway) {
  PlanPtr served;
  std::optional<ResolvedTransfer> pageable;
  auto classified = classify(transfer, prepared, &served, pageable);
  if (pageable) return copy_pageable(*pageable, midway);
  if (const auto* const reason = std::get_if<NativeReason>(&classified)) return *reason;
  std::vector<SplittableTransfer> group;
  group.push_back(std::get<SplittableTransfer>(std::move(classified)));
  return split(group, prepared, std::move(served), midway);
}

}  // namespace polypath
