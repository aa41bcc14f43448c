#include "core/context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "registry/registry.hpp"
#include "tune/measure_host.hpp"
#include "tune/profile.hpp"

namespace polypath {

Context::Context(const OptionArguments& arguments) : Context(arguments, ContextChange()) {}

Context::Context(const OptionArguments& arguments, const ContextChange& /*change*/)
    : Context((ContextChange::require_none_at_fork(), open_node(load_options(arguments))),
              arguments) {}

Context::Context(NodeSource source, const OptionArguments& arguments)
    : options_(load_options(arguments, &infos_)),
      source_(with_emulated_mesh(std::move(source), options_.emulate_mesh_gbps)),
      others_(process_registry(registry_of(options_, source_)), *source_.driver, source_.node),
      devices_(source_.driver, source_.nvml, source_.node, options_.pinned_limit),
      imports_(source_.driver, devices_),
      shared_(options_.share_mappings),
      dispatcher_(source_, options_, devices_, imports_, shared_, others_, counters_),
      batches_(source_, options_, devices_, imports_, shared_, others_, counters_, dispatcher_),
      spreads_(source_, options_, devices_, imports_, shared_, others_, counters_, dispatcher_) {}

Context::~Context() { end_.emplace(); }

// ---- transfers ----------------------------------------------------------------------------------

void Context::copy_async(const Transfer& transfer) { issue(transfer, nullptr); }

void Context::issue(const Transfer& transfer, const PreparedPlan* plan) {
  if (transfer.bytes == 0) return;
  try {
    bool midway = false;
    if (const auto reason = dispatcher_.issue(transfer, plan, midway))
      dispatcher_.native_copy(transfer, *reason);
  } catch (...) {
    counters_.count_failed();
    throw;
  }
}

bool Context::try_copy_async(const Transfer& transfer, bool& midway) {
  midway = false;
  if (transfer.bytes == 0) return false;
  if (copies_natively()) return copy_async(transfer), true;
  try {
    const auto reason = dispatcher_.issue(transfer, nullptr, midway);
    if (reason) dispatcher_.decline(transfer, *reason);
    return !reason;
  } catch (...) {
    counters_.count_failed();
    throw;
  }
}

void Context::try_group_copy_async(std::span<const Transfer> transfers, std::span<int> issued) {
  if (copies_natively()) {
    group_copy_async(transfers);
    std::ranges::fill(issued, 1);
    return;
  }
  try {
    dispatcher_.try_issue_group(transfers, issued);
  } catch (...) {
    counters_.count_failed();
    throw;
  }
}

void Context::group_copy_async(std::span<const Transfer> transfers) {
  issue_group(transfers, nullptr);
}

void Context::follow(std::span<const Transfer> transfers, const PreparedPlan& plan) {
  issue_group(transfers, &plan);
}

void Context::issue_group(std::span<const Transfer> transfers, const PreparedPlan* plan) {
  if (transfers.size() == 1) return issue(transfers.front(), plan);
  try {
    dispatcher_.issue_group(transfers, plan);
  } catch (...) {
    counters_.count_failed();
    throw;
  }
}

void Context::copy_batch_async(const Batch& batch) {
  try {
    batches_.issue(batch);
  } catch (...) {
    counters_.count_failed();
    throw;
  }
}

bool Context::try_copy_batch_async(const Batch& batch, bool& midway) {
  try {
    return batches_.try_issue(batch, midway);
  } catch (...) {
    counters_.count_failed();
    throw;
  }
}

void Context::read_async(const FileRead& read) {
  if (read.bytes == 0) return;
  try {
    dispatcher_.read(read);
  } catch (...) {
    counters_.count_failed();
    throw;
  }
}

void Context::prepare_batches(const std::vector<Request>& requests) {
  check(requests);
  batches_.prepare(requests);
}

void Context::spread_async(const Spread& spread) {
  // One destination is a transfer.
  if (spread.count == 1 && spread.dst != nullptr && spread.streams != nullptr)
    return copy_async(spread.at(0));
  try {
    spreads_.issue(spread);
  } catch (...) {
    counters_.count_failed();
    throw;
  }
}

void Context::check_spread(MemoryId src, const std::vector<int>& gpus) const {
  std::vector<Request> requests;
  for (const int gpu : gpus) requests.push_back({.src = src, .dst = MemoryId::gpu(gpu)});
  check(requests);
  std::vector<int> sorted = gpus;
  std::ranges::sort(sorted);
  if (gpus.empty() || std::ranges::adjacent_find(sorted) != sorted.end())
    throw InvalidArgument("gpus of a spread are none, or one is there twice");
}

void Context::prepare_spread(MemoryId src, const std::vector<int>& gpus) {
  check_spread(src, gpus);
  spreads_.prepare(src, gpus);
}

std::pair<SpreadTrees, SpreadPlan> Context::plan_spread(MemoryId src, const std::vector<int>& gpus,
                                                        std::uint64_t bytes) {
  check_spread(src, gpus);
  if (bytes > kMaxPlanned)
    throw InvalidArgument(
        fmt::format("{} bytes are more than a plan is made for, {}", bytes, kMaxPlanned));
  return spreads_.plan(src, gpus, bytes);
}

// ---- memory of other processes ------------------------------------------------------------------

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
  if (memory != nullptr && holder >= 0 && gpu >= 0 && holder != gpu)
    dispatcher_.prepare_for(memory, gpu);
  if (options_.prepare == PrepareMode::wait) dispatcher_.wait_prepared();
}

// ---- mapped memory ------------------------------------------------------------------------------

void Context::share_mapping(CUdeviceptr address, std::uint64_t bytes) {
  const PointerInfo info = inspect(driver(), address);
  if (info.kind != PointerInfo::Kind::device || !info.mapped || bytes == 0)
    throw InvalidArgument(fmt::format("{} is not memory of a GPU that was mapped by cuMemMap",
                                      range_text(address, bytes)));
  shared_.add(address, bytes);
}

// ---- plans --------------------------------------------------------------------------------------

void Context::check(const std::vector<Request>& requests) const {
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
}

Plan Context::plan(const std::vector<Request>& requests) {
  check(requests);
  for (const Request& request : requests) {
    if (!request.is_pageable) continue;
    if (requests.size() > 1)
      throw InvalidArgument("a transfer of pageable memory is planned alone");
    if (request.bytes <= kMaxPlanned) return dispatcher_.pageable_plan(request).plan;
  }
  for (const Request& request : requests)
    if (request.bytes > kMaxPlanned)
      throw InvalidArgument(
          fmt::format("{} bytes are more than a plan is made for, {}", request.bytes, kMaxPlanned));
  return planner().explained(requests);
}

Thresholds Context::smallest_split() {
  Thresholds least = polypath::smallest_split(planner(), node());
  for (std::uint64_t* const kind : {&least.gpu_to_gpu, &least.host_to_gpu, &least.gpu_to_host})
    *kind = std::max(*kind, dispatcher_.min_split_bytes());
  least.pageable_to_gpu = dispatcher_.min_pageable_bytes(true);
  least.gpu_to_pageable = dispatcher_.min_pageable_bytes(false);
  if (copies_natively()) least.gpu_to_gpu = 0;
  return least;
}

ExecutorKind Context::executor_for(const std::vector<Request>& requests) {
  return planner().plan(requests, 0)->executor;
}

void Context::reset_counters() {
  counters_.reset();
  shared_.reset_counts();
  dispatcher_.reset_graph_counts();
}

void Context::prepare(const std::vector<Request>& requests) {
  check(requests);
  dispatcher_.prepare(requests);
  for (const Request& request : requests)
    if (request.is_pageable) dispatcher_.prepare_pageable(request);
}

// ---- what is known of the node ------------------------------------------------------------------

void Context::measure(const ProgressFunction& progress) {
  if (source_.emulated_mesh_gbps > 0)
    throw InvalidArgument("an emulated mesh is not measured: its links carry what was asked");
  require_place_of_profile();
  Node measured = measure_capacities(driver(), node(), progress);
  // A simulated node's CPU is not this machine's.
  if (!source_.simulated)
    measured.costs = measure_host_copies(driver(), measured, dispatcher_.pageable().threads());
  source_.node.links = std::move(measured.links);
  source_.node.ports = std::move(measured.ports);
  source_.node.costs = measured.costs;
  planner().use(source_.node);
  dispatcher_.forget_pageable_plans();
  dispatcher_.load().use(source_.node);
  spreads_.forget();
  if (source_.simulated) return;
  source_.capacities = Capacities::measured;
  const std::lock_guard lock(profile_mutex_);
  news_.links = true;
  save();
}

void Context::require_place_of_profile() const {
  if (source_.profile_file.empty()) return;
  if (const std::string why = unusable_reason(source_.profile_file); !why.empty())
    throw InvalidArgument(why);
}

void Context::save_tuned_transfer(TunedTransfer entry) {
  const std::lock_guard lock(profile_mutex_);
  put(std::move(entry));
  planner().use(source_.tables.table<TunedTransfer>().entries());
  save();
}

void Context::tuned_to_json(nlohmann::json& object) const {
  const std::lock_guard lock(profile_mutex_);
  source_.tables.to_json(object);
}

std::string Context::profile_state() const {
  const std::lock_guard lock(profile_mutex_);
  return source_.profile_state;
}

void Context::save() {
  if (source_.profile_file.empty()) return;
  Profile known = make_profile(source_.node, source_.fingerprint, source_.driver_version);
  known.tables = source_.tables;
  std::string why;
  if (add_to_profile(source_.profile_file, known, news_, &why)) {
    source_.profile_state = "made now";
    news_ = {};  // from now on the file's, which others may change
  } else if (source_.profile_state != why) {
    // A search saves after every choice: the same reason is told once.
    log_warn("the profile was not kept: {}", why);
    source_.profile_state = why;
  }
}

}  // namespace polypath
