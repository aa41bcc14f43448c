#include "core/context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <utility>

#include "base/log.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "exec/context_guard.hpp"
#include "exec/relaxed_capture.hpp"
#include "registry/process_registry.hpp"
#include "tune/profile.hpp"

namespace polypath {
namespace {

/// Forking and joining a staged route alone takes as long as the native copy of this many bytes; looking
/// for a plan would only delay it.
constexpr std::uint64_t kNeverSplitBelow = 256 * kKiB;

PlanOptions plan_options(const Options& options, const RingLimits& rings) {
  PlanOptions plan;
  plan.filter.direct = options.direct_routes;
  plan.filter.gpu = options.gpu_routes;
  plan.filter.host = options.host_routes;
  plan.max_routes = options.max_routes;
  plan.min_bytes = options.min_size;
  plan.chunks.chunk_bytes = options.chunk_size;
  plan.chunks.chunks = options.chunks;
  plan.chunks.rings = rings;
  return plan;
}

std::string range_text(CUdeviceptr address, std::uint64_t bytes) {
  return fmt::format("[{:#x}, +{})", address, bytes);
}

}  // namespace

bool is_special_stream(CUstream stream) noexcept {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

Context::Context(const OptionArguments& arguments)
    : Context(open_node(load_options(arguments)), arguments) {}

Context::Context(NodeSource source, const OptionArguments& arguments)
    : options_(load_options(arguments, &infos_)),
      source_(with_emulated_mesh(std::move(source), options_.emulate_mesh_gbps)),
      never_split_below_(std::max(kNeverSplitBelow, options_.min_size)),
      others_(process_registry(registry_of(options_, source_)), *source_.driver, source_.node),
      devices_(source_.driver, static_cast<int>(source_.node.gpus.size())),
      imports_(source_.driver, devices_),
      mesh_(make_emulated_mesh(source_, devices_)),
      copies_(source_.driver, mesh_.get()),
      resources_(source_.driver, source_.node, devices_, options_.staging_size),
      planner_(source_.node, plan_options(options_, resources_.ring_limits()), options_.executor),
      streams_(source_.driver, resources_.events(), copies_),
      graphs_(source_.driver, resources_.events(), copies_, streams_, options_.graph_cache_size),
      preparer_(*source_.driver, resources_, imports_) {
  planner_.use(source_.tuned);
}

Context::~Context() = default;

// ---- from the addresses to a request -------------------------------------------------------------

PointerInfo Context::checked_info(const char* argument, CUdeviceptr address, std::uint64_t bytes) {
  if (address == 0) throw InvalidArgument(fmt::format("{} is null", argument));
  const PointerInfo info = inspect(driver(), imports_, address);
  if (info.kind == PointerInfo::Kind::unknown) {
    if (!is_readable(address, bytes))
      throw InvalidArgument(
          fmt::format("{} {} is no memory of this process: out of range, or freed", argument,
                      range_text(address, bytes)));
    return info;
  }
  const std::uint64_t offset = address - info.start;
  if (info.bytes != 0 && bytes > info.bytes - offset &&
      inspect(driver(), address + bytes - 1).kind == PointerInfo::Kind::unknown)
    throw InvalidArgument(fmt::format("{} {} passes the end of its allocation {}", argument,
                                      range_text(address, bytes),
                                      range_text(info.start, info.bytes)));
  return info;
}

std::optional<MemoryId> Context::memory_of(CUdeviceptr address, const PointerInfo& info) {
  if (info.kind == PointerInfo::Kind::device) return MemoryId::gpu(info.gpu);
  const auto& hosts = node().hosts;
  if (hosts.empty()) return std::nullopt;
  if (hosts.size() == 1) return MemoryId::host(0);
  const int domain = numa_domain_of(address);
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (hosts[i].numa == domain) return MemoryId::host(static_cast<int>(i));
  return MemoryId::host(0);
}

CallerStream Context::caller_of(CUstream stream) {
  CallerStream caller;
  caller.stream = stream;
  if (is_special_stream(stream)) {
    POLYPATH_CHECK(driver(), ctx_get_current(&caller.context));
  } else {
    POLYPATH_CHECK(driver(), stream_get_ctx(stream, &caller.context));
  }
  if (driver().stream_get_id != nullptr)
    POLYPATH_CHECK(driver(), stream_get_id(stream, &caller.id));
  return caller;
}

std::uint64_t Context::unreachable_for(const PointerInfo& dst, CUdeviceptr address,
                                       std::uint64_t bytes) {
  // A staging GPU writes to the destination itself; the source is read by its own GPU. Plain memory is
  // reached by the peer access that prepare() enables; pools and mappings have their own access lists.
  // What another process has is imported for each GPU that writes to it.
  if (dst.kind != PointerInfo::Kind::device || dst.plain || dst.import != nullptr) return 0;
  std::uint64_t unreachable = 0;
  for (int gpu = 0; gpu < devices_.count(); ++gpu) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = gpu;
    bool reached = false;
    if (dst.pool != nullptr && driver().mem_pool_get_access != nullptr) {
      CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
      reached = driver().mem_pool_get_access(&access, dst.pool, &location) == CUDA_SUCCESS &&
                access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    } else if (dst.pool == nullptr && driver().mem_get_access != nullptr) {
      for (const CUdeviceptr end : {address, address + bytes - 1}) {
        unsigned long long access = 0;
        reached = driver().mem_get_access(&access, &location, end) == CUDA_SUCCESS &&
                  access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (!reached) break;
      }
    }
    if (!reached) unreachable |= planner_.bit(MemoryId::gpu(gpu));
  }
  return unreachable;
}

Context::Classified Context::classify(const Transfer& transfer, bool alone) {
  using Kind = PointerInfo::Kind;
  const auto native = [](NativeReason reason) { return Classified{std::nullopt, reason}; };

  const PointerInfo src = checked_info("src", transfer.src, transfer.bytes);
  const PointerInfo dst = checked_info("dst", transfer.dst, transfer.bytes);
  if (transfer.bytes < never_split_below_) return native(NativeReason::small);
  if (src.kind == Kind::managed || dst.kind == Kind::managed) return native(NativeReason::managed);
  if (src.kind == Kind::unknown || dst.kind == Kind::unknown) return native(NativeReason::pageable);
  const auto passes = [&](const PointerInfo& info, CUdeviceptr address) {
    return info.bytes != 0 && transfer.bytes > info.bytes - (address - info.start);
  };
  if (passes(src, transfer.src) || passes(dst, transfer.dst))
    return native(NativeReason::several_allocations);

  const auto hidden = [](const PointerInfo& info) {
    return info.kind == Kind::device && info.gpu < 0;
  };
  if (hidden(src) || hidden(dst)) return native(NativeReason::other_process);

  const auto from = memory_of(transfer.src, src);
  const auto to = memory_of(transfer.dst, dst);
  if (!from || !to || *from == *to || (from->is_host() && to->is_host()))
    return native(NativeReason::same_memory);
  const Request request{*from, *to, transfer.bytes};
  if (alone && planner_.plan({&request, 1}, 0)->plan.native()) return native(NativeReason::no_gain);

  if (driver().stream_is_capturing != nullptr) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (driver().stream_is_capturing(transfer.stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE)
      return native(NativeReason::capturing);
  }

  Splittable splittable;
  splittable.transfer = transfer;
  splittable.request = request;
  splittable.caller = caller_of(transfer.stream);
  splittable.caller_gpu = devices_.gpu_of(splittable.caller.context);
  const auto primary = [&](const PointerInfo& info) {
    if (info.import != nullptr) return info.context == splittable.caller.context;
    return info.kind != Kind::device || info.context == nullptr ||
           info.context == devices_.context_if_active(info.gpu);
  };
  if (splittable.caller_gpu < 0 || !primary(src) || !primary(dst))
    return native(NativeReason::other_context);
  // The lane kernel reaches what peer access gives, and what was opened in its context.
  const auto by_kernel = [](const PointerInfo& info) {
    return info.plain || info.import != nullptr;
  };
  if (mesh_ && from->is_gpu() && to->is_gpu() && !(by_kernel(src) && by_kernel(dst)))
    return native(NativeReason::unreachable);
  splittable.dst_buffer = dst.buffer;
  splittable.src_buffer = src.buffer;
  splittable.dst_import = dst.import;
  splittable.src_import = src.import;
  splittable.unreachable = unreachable_for(dst, transfer.dst, transfer.bytes);
  return {std::move(splittable), NativeReason::no_gain};
}

// ---- the native copy -------------------------------------------------------------------------------

void Context::native_copy(const Transfer& transfer, NativeReason reason) {
  const CUresult result = issue_native(copies_, driver(), devices_, imports_, transfer);
  if (result != CUDA_SUCCESS) [[unlikely]] {
    const auto describe_argument = [&](const char* name, CUdeviceptr address) {
      const PointerInfo info = inspect(driver(), address);
      return fmt::format("{} {} of allocation {}", name, range_text(address, transfer.bytes),
                         info.bytes == 0 ? "unknown" : range_text(info.start, info.bytes));
    };
    const std::string message =
        fmt::format("cuMemcpyAsync failed: {}; {}, {}", describe(driver(), result),
                    describe_argument("dst", transfer.dst), describe_argument("src", transfer.src));
    if (result == CUDA_ERROR_INVALID_VALUE) throw InvalidArgument(message);
    throw DriverError(message, static_cast<int>(result));
  }
  counters_.count_native(reason, transfer.bytes);
}

void Context::native_copy_in_its_context(const Transfer& transfer, NativeReason reason) {
  ContextGuard guard(driver());
  CUcontext context = guard.saved();
  if (!is_special_stream(transfer.stream))
    POLYPATH_CHECK(driver(), stream_get_ctx(transfer.stream, &context));
  guard.use(context);
  native_copy(transfer, reason);
}

// ---- the split transfer ----------------------------------------------------------------------------

void Context::leave_out(const Route& route, LeftOutReason why, NativeReason native,
                        Exclusions& without) {
  without.memories |= planner_.bit(route.via);
  without.reason = native;
  counters_.count_left_out(why);
}

Context::Reach Context::reach(const Route& route, const Splittable& one) {
  Reach reach = Reach::yes;
  const auto consider = [&](const std::shared_ptr<ImportedMemory>& memory, int leg) {
    const int gpu = resources_.issuer(leg);
    if (memory == nullptr ||
        memory->address_in(gpu, devices_.context_if_active(gpu), memory->start()))
      return;
    reach = std::max(reach, memory->failed(gpu) ? Reach::never : Reach::not_yet);
    preparer_.request(memory, gpu);
  };
  consider(one.src_import, route.legs.front());
  consider(one.dst_import, route.legs.back());
  return reach;
}

RouteEnds Context::ends_of(const Route& route, const Splittable& one) {
  const auto seen_by = [&](const std::shared_ptr<ImportedMemory>& memory, CUdeviceptr address,
                           int leg) {
    const int gpu = resources_.issuer(leg);
    if (memory == nullptr) return address;
    // The program closes it while it copies: the driver would refuse that copy as well.
    return memory->address_in(gpu, devices_.context(gpu), address).value_or(address);
  };
  return {seen_by(one.dst_import, one.transfer.dst, route.legs.back()),
          seen_by(one.src_import, one.transfer.src, route.legs.front())};
}

bool Context::all_ready(const Plan& plan, const std::vector<Splittable>& group,
                        Exclusions& without) {
  bool ready = true;
  for (std::size_t t = 0; t < group.size(); ++t) {
    for (const RouteShare& share : plan.transfers[t].routes) {
      if (!share.route.staged()) continue;
      bool failed = false;
      bool waits = false;
      if (!resources_.ready(share.route)) {
        failed = preparer_.failed(share.route);
        waits = true;
        preparer_.request(share.route, 1);
      }
      switch (reach(share.route, group[t])) {
        case Reach::yes: break;
        case Reach::not_yet: waits = true; break;
        case Reach::never: failed = true; break;
      }
      if (!failed && !waits) continue;
      ready = false;
      leave_out(share.route, failed ? LeftOutReason::failed : LeftOutReason::not_ready,
                NativeReason::not_ready, without);
    }
  }
  return ready;
}

void Context::prepare_now(const Plan& plan, const std::vector<Splittable>& group) {
  bool waits = false;
  try {
    for (std::size_t t = 0; t < group.size(); ++t) {
      for (const RouteShare& share : plan.transfers[t].routes) {
        if (!share.route.staged()) continue;
        const std::lock_guard lock(resources_.lock());
        if (!resources_.ready(share.route)) {
          preparer_.request(share.route, 1);
          waits = true;
        }
        waits = reach(share.route, group[t]) == Reach::not_yet || waits;
      }
    }
  } catch (const DriverError& error) {
    // Nothing was issued: the transfer goes without what is not ready.
    log_info("routes are not waited for: {}", error.what());
    return;
  }
  if (waits) preparer_.wait();
}

std::optional<std::vector<BoundTransfer>> Context::bind(const Plan& plan,
                                                        const std::vector<Splittable>& group,
                                                        Exclusions& without) {
  const std::uint64_t run = ++runs_;
  std::vector<BoundTransfer> bound(group.size());
  for (std::size_t t = 0; t < group.size(); ++t) {
    const TransferPlan& transfer = plan.transfers[t];
    bound[t].dst = group[t].transfer.dst;
    bound[t].src = group[t].transfer.src;
    bound[t].dst_memory = group[t].request.dst;
    bound[t].src_memory = group[t].request.src;
    bound[t].caller = group[t].caller;
    bound[t].caller_gpu = group[t].caller_gpu;
    bound[t].dst_buffer = group[t].dst_buffer;
    bound[t].src_buffer = group[t].src_buffer;
    bound[t].leases.resize(transfer.routes.size());
    if (transfer.native()) continue;
    bound[t].ticket = std::make_shared<Ticket>(
        group[t].caller, std::make_shared<PooledEvent>(resources_.events(), group[t].caller_gpu));
    for (std::size_t r = 0; r < transfer.routes.size(); ++r) {
      const Route& route = transfer.routes[r].route;
      if (!route.staged()) continue;
      auto lease = resources_.lease(route, ends_of(route, group[t]), bound[t].ticket, run);
      if (!lease) {
        if (const auto more = resources_.next_size(route)) preparer_.request(route, *more);
        leave_out(route, LeftOutReason::busy, NativeReason::busy, without);
        return std::nullopt;
      }
      bound[t].leases[r] = std::move(*lease);
    }
  }
  return bound;
}

bool Context::in_window(const PreparedPlan& prepared, const Splittable& one) {
  const std::lock_guard lock(resources_.lock());
  for (const PreparedPlan* const plan : {&prepared, prepared.in_window.get()})
    for (const RouteShare& share : plan->plan.transfers.front().routes)
      if (share.route.staged() && resources_.used_by_another(share.route, one.caller)) return true;
  return false;
}

bool Context::idle(const Splittable& one) {
  const RelaxedCapture relaxed(driver());
  return driver().stream_query(one.transfer.stream) == CUDA_SUCCESS;
}

bool Context::try_plan(const PreparedPlan& prepared, const std::vector<Splittable>& group,
                       Exclusions& without) {
  const auto give_up = [&] {
    without.reason = NativeReason::driver_error;
    without.memories = ~std::uint64_t{0};
    return false;
  };
  const std::lock_guard lock(resources_.lock());
  const RelaxedCapture relaxed(driver());
  std::optional<std::vector<BoundTransfer>> bound;
  try {
    if (!all_ready(prepared.plan, group, without)) return false;
    bound = bind(prepared.plan, group, without);
  } catch (const DriverError& error) {
    log_info("native copy instead: {}", error.what());
    return give_up();
  }
  if (!bound) return false;
  Executor& executor = prepared.executor == ExecutorKind::graph ? static_cast<Executor&>(graphs_)
                                                                : static_cast<Executor&>(streams_);
  if (executor.run(prepared.schedule, *bound) == RunOutcome::failed_before_first_copy)
    return give_up();
  counters_.count_split(prepared.plan, prepared.schedule);
  return true;
}

std::optional<NativeReason> Context::split(std::vector<Splittable>& group) {
  Exclusions without;
  std::vector<Request> requests;
  for (const Splittable& one : group) {
    requests.push_back(one.request);
    without.memories |= one.unreachable;
    if (one.unreachable != 0) {
      counters_.count_left_out(LeftOutReason::unreachable);
      without.reason = NativeReason::unreachable;
    }
  }
  std::vector<Request> beside;
  others_.pairs_in_use(beside);
  std::erase_if(beside, [&](const Request& other) {
    return std::ranges::any_of(requests, [&](const Request& request) {
      return request.src == other.src && request.dst == other.dst;
    });
  });
  // Each round leaves out at least one staging memory more, until the plan is native.
  for (;;) {
    auto prepared = planner_.plan(requests, without.memories, beside);
    if (prepared->in_window != nullptr && in_window(*prepared, group.front())) {
      prepared = prepared->in_window;
    } else if (prepared->on_idle_stream != nullptr && idle(group.front())) {
      prepared = prepared->on_idle_stream;
    }
    if (prepared->plan.native()) {
      if (!beside.empty() && without.reason == NativeReason::no_gain)
        without.reason = NativeReason::links_in_use;
      for (const Request& request : requests) others_.started(request, prepared->plan.native_us);
      return without.reason;
    }
    if (options_.prepare == PrepareMode::wait) prepare_now(prepared->plan, group);
    if (try_plan(*prepared, group, without)) {
      for (std::size_t t = 0; t < group.size(); ++t)
        if (prepared->plan.transfers[t].native())
          counters_.count_native(NativeReason::no_gain, requests[t].bytes);
      for (const Request& request : requests) others_.started(request, prepared->plan.predicted_us);
      return std::nullopt;
    }
  }
}

// ---- entry points ----------------------------------------------------------------------------------

Context::Classified Context::checked(const Transfer& transfer, bool alone) {
  const CUdeviceptr low = std::min(transfer.dst, transfer.src);
  const CUdeviceptr high = std::max(transfer.dst, transfer.src);
  if (low != 0 && high - low < transfer.bytes)
    throw InvalidArgument(fmt::format("dst {} and src {} overlap",
                                      range_text(transfer.dst, transfer.bytes),
                                      range_text(transfer.src, transfer.bytes)));
  try {
    return classify(transfer, alone);
  } catch (const DriverError& error) {
    log_info("native copy instead: {}", error.what());
    return {std::nullopt, NativeReason::driver_error};
  }
}

std::optional<NativeReason> Context::issue_split(const Transfer& transfer) {
  Classified classified = checked(transfer, true);
  if (!classified.splittable) return classified.reason;
  std::vector<Splittable> group;
  group.push_back(std::move(*classified.splittable));
  return split(group);
}

void Context::issue_group(std::span<const Transfer> transfers) {
  std::vector<Splittable> group;
  std::vector<std::pair<const Transfer*, NativeReason>> native;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].bytes == 0) continue;
    try {
      Classified classified = checked(transfers[i], false);
      if (classified.splittable)
        group.push_back(std::move(*classified.splittable));
      else
        native.emplace_back(&transfers[i], classified.reason);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("transfer {}: {}", i, error.what()));
    }
  }
  for (const auto& [transfer, reason] : native) native_copy_in_its_context(*transfer, reason);
  if (group.empty()) return;
  if (const auto reason = split(group))
    for (const Splittable& one : group) native_copy_in_its_context(one.transfer, *reason);
}

void Context::copy_async(const Transfer& transfer) {
  if (transfer.bytes == 0) return;
  try {
    if (const auto reason = issue_split(transfer)) native_copy(transfer, *reason);
  } catch (...) {
    counters_.count_failed();
    throw;
  }
}

bool Context::try_copy_async(const Transfer& transfer) {
  if (transfer.bytes == 0) return false;
  // Nobody else's copy goes over an emulated link.
  if (copies_.emulates()) {
    copy_async(transfer);
    return true;
  }
  try {
    const auto reason = issue_split(transfer);
    if (reason) counters_.count_native(*reason, transfer.bytes);
    return !reason;
  } catch (...) {
    counters_.count_failed();
    throw;
  }
}

void Context::group_copy_async(std::span<const Transfer> transfers) {
  if (transfers.size() == 1) return copy_async(transfers.front());
  try {
    issue_group(transfers);
  } catch (...) {
    counters_.count_failed();
    throw;
  }
}

void Context::memory_exported(const CUipcMemHandle& handle, CUdeviceptr address) {
  const PointerInfo info = inspect(driver(), address);
  if (info.kind != PointerInfo::Kind::device)
    throw InvalidArgument(fmt::format("{:#x} is not memory of a GPU", address));
  others_.tell(handle, info);
}

void Context::memory_imported(const CUipcMemHandle& handle, CUdeviceptr address) {
  const int holder = others_.holder_of(handle);
  if (holder < 0 && !unplaced_.exchange(true))
    log_info(
        "memory of another process is copied natively: that process does not say on which GPU it "
        "lies "
        "(is it run with polypath, by the same user, and sees this process its GPU?)");
  memory_imported(handle, address, holder);
}

void Context::memory_imported(const CUipcMemHandle& handle, CUdeviceptr address, int holder) {
  const PointerInfo info = inspect(driver(), address);
  if (info.kind != PointerInfo::Kind::device)
    throw InvalidArgument(
        fmt::format("{:#x} is not memory that was opened from a handle", address));
  CUcontext context = nullptr;
  POLYPATH_CHECK(driver(), ctx_get_current(&context));
  imports_.opened(handle, address, info.start + info.bytes - address, holder, context, info.buffer);
  const auto memory = imports_.find(address, info.buffer);
  const int gpu = devices_.gpu_of(context);
  if (memory != nullptr && holder >= 0 && gpu >= 0 && holder != gpu) prepare_for(memory, gpu);
  if (options_.prepare == PrepareMode::wait) preparer_.wait();
}

void Context::prepare_for(const std::shared_ptr<ImportedMemory>& memory, int gpu) {
  const MemoryId here = MemoryId::gpu(gpu);
  const MemoryId there = MemoryId::gpu(memory->holder());
  const auto consider = [&](MemoryId src, MemoryId dst) {
    // Contexts and staging memory are not for programs whose messages are all small.
    const Request all{src, dst, memory->bytes()};
    const auto prepared = planner_.plan({&all, 1}, 0);
    for (const RouteShare& share : prepared->plan.transfers.front().routes) {
      if (!share.route.staged()) continue;
      preparer_.request(share.route, 1);
      preparer_.request(memory, resources_.issuer(src == there ? share.route.legs.front()
                                                               : share.route.legs.back()));
    }
  };
  consider(there, here);
  consider(here, there);
}

Plan Context::plan(const std::vector<Request>& requests) {
  for (const Request& request : requests) {
    for (const MemoryId memory : {request.src, request.dst})
      if (!node().contains(memory))
        throw InvalidArgument(fmt::format("{} is not on this node ({} GPUs, {} host memories)",
                                          to_string(memory), node().gpus.size(),
                                          node().hosts.size()));
    if (request.src == request.dst)
      throw InvalidArgument(
          fmt::format("source and destination are both {}", to_string(request.src)));
  }
  return planner_.plan(requests, 0)->plan;
}

Thresholds Context::smallest_split() {
  Thresholds least = polypath::smallest_split(planner_, node());
  for (std::uint64_t* const kind : {&least.gpu_to_gpu, &least.host_to_gpu, &least.gpu_to_host})
    *kind = std::max(*kind, never_split_below_);
  // Copies that are not split have to go over the emulated links as well.
  if (mesh_) least.gpu_to_gpu = 0;
  return least;
}

ExecutorKind Context::executor_for(const std::vector<Request>& requests) {
  return planner_.plan(requests, 0)->executor;
}

GraphCache::Counts Context::graph_counts() {
  const std::lock_guard lock(resources_.lock());
  return graphs_.counts();
}

void Context::reset_counters() {
  counters_.reset();
  const std::lock_guard lock(resources_.lock());
  graphs_.reset_counts();
}

void Context::prepare(const std::vector<Request>& requests) {
  static_cast<void>(plan(requests));  // checks the memories
  std::map<MemoryId, int> rings;
  std::map<int, int> channels;
  std::vector<Route> routes;
  const auto together = planner_.widest(requests);
  for (std::size_t t = 0; t < requests.size(); ++t) {
    const auto [src, dst, bytes] = requests[t];
    for (const MemoryId end : {src, dst})
      if (end.is_gpu()) devices_.context(end.index);
    if (src.is_gpu() && dst.is_gpu()) {
      const auto link = node().find_link(src, dst);
      if (link && node().links[static_cast<std::size_t>(*link)].type != LinkType::bounce) {
        devices_.enable_peer_access(src.index, dst.index);
        devices_.enable_peer_access(dst.index, src.index);
      }
    }
    // Alone a transfer may take routes that the group leaves to others.
    std::vector<Route> wanted = planner_.widest({requests[t]}).front();
    for (const Route& route : together[t])
      if (std::ranges::find(wanted, route) == wanted.end()) wanted.push_back(route);
    for (const Route& route : wanted) {
      if (!route.staged()) continue;
      ++rings[route.via];
      for (const int leg : route.legs) ++channels[leg];
      routes.push_back(route);
    }
  }
  for (const Route& route : routes) {
    int copies = rings[route.via];
    for (const int leg : route.legs) copies = std::max(copies, channels[leg]);
    resources_.prepare(route, copies);
  }
}

void Context::measure(const ProgressFunction& progress) {
  if (mesh_)
    throw InvalidArgument("an emulated mesh is not measured: its links carry what was asked");
  Node measured = measure_capacities(driver(), node(), progress);
  source_.node.links = std::move(measured.links);
  source_.node.ports = std::move(measured.ports);
  source_.node.costs = measured.costs;
  planner_.clear();
  if (source_.simulated) return;
  source_.capacities = Capacities::measured;
  save();
}

void Context::keep_tuned(std::vector<TunedChoice> tuned) {
  planner_.use(tuned);
  source_.tuned = std::move(tuned);
  save();
}

void Context::save() {
  if (source_.profile_file.empty()) return;
  Profile profile = make_profile(source_.node, source_.fingerprint, source_.driver_version);
  profile.tuned = source_.tuned;
  std::string why;
  if (source_.profile_refused) {
    // A slip in an edit must not cost the other edits.
    std::error_code failed;
    const std::filesystem::path aside = source_.profile_file + ".refused";
    std::filesystem::rename(source_.profile_file, aside, failed);
    if (!failed) log_warn("the profile that was not usable is kept as {}", aside.string());
    source_.profile_refused = false;
  }
  if (save_profile(source_.profile_file, profile, &why)) {
    source_.profile_state = "made now";
  } else if (source_.profile_state != why) {
    // A search saves after every choice: the same reason is told once.
    log_warn("the profile was not kept: {}", why);
    source_.profile_state = why;
  }
}

}  // namespace polypath
