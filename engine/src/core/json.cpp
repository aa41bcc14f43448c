#include "core/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string>

#include "base/units.hpp"
#include "core/version.hpp"
#include "driver/context_guard.hpp"
#include "exec/kernels/images.hpp"
#include "topology/node_json.hpp"

namespace polypath {
namespace {

using nlohmann::json;

std::string hex_of(const std::string& bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

json transfer_json(const TransferPlan& transfer) {
  json routes = json::array();
  for (const RouteShare& share : transfer.routes) {
    const auto bytes = static_cast<double>(transfer.request.bytes);
    routes.push_back({{"route", to_string(share.route)},
                      {"kind", to_string(share.route.kind)},
                      {"via", share.route.staged() ? json(to_string(share.route.via)) : json()},
                      {"bytes", share.bytes},
                      {"share", bytes > 0 ? static_cast<double>(share.bytes) / bytes : 0.0},
                      {"chunks", share.chunks},
                      {"chunk_bytes", share.chunk_bytes},
                      {"rate_gbps", share.gbps}});
  }
  json excluded = json::array();
  for (const ExcludedRoute& excluded_route : transfer.excluded)
    excluded.push_back(
        {{"route", to_string(excluded_route.route)}, {"reason", excluded_route.reason}});
  const auto name = [&](MemoryId memory) {
    return to_string(memory) +
           (transfer.request.is_pageable && memory.is_host() ? ":pageable" : "");
  };
  return {{"src", name(transfer.request.src)},     {"dst", name(transfer.request.dst)},
          {"bytes", transfer.request.bytes},       {"native", transfer.native()},
          {"copy_threads", transfer.copy_threads}, {"host_gbps", transfer.host_gbps},
          {"routes", std::move(routes)},           {"excluded", std::move(excluded)}};
}

json graphs_json(Context& context) {
  const GraphCache::Counts counts = context.graph_counts();
  return {{"launches", counts.launches}, {"hits", counts.hits},
          {"patches", counts.patches},   {"patched_nodes", counts.patched_nodes},
          {"builds", counts.builds},     {"evictions", counts.evictions},
          {"failed", counts.failed},     {"busy", counts.busy},
          {"cached", counts.cached}};
}

json emulated_mesh_json(const Context& context) {
  if (context.source().emulated_mesh_gbps == 0) return nullptr;
  json links = json::array();
  for (const EmulatedLink& link : context.source().emulated_links)
    links.push_back({{"from", to_string(MemoryId::gpu(link.from))},
                     {"to", to_string(MemoryId::gpu(link.to))},
                     {"lanes", link.lanes},
                     {"gbps", link.reached_gbps}});
  return {{"gbps", context.source().emulated_mesh_gbps}, {"links", std::move(links)}};
}

}  // namespace

json to_json(const Plan& plan) {
  json transfers = json::array();
  for (const TransferPlan& transfer : plan.transfers) {
    transfers.push_back(transfer_json(transfer));
    transfers.back()["reason"] = plan.reason;
  }
  return {{"bytes", plan.bytes()},
          {"predicted_us", plan.predicted_us},
          {"predicted_gbps", rate_gbps(plan.bytes(), plan.predicted_us)},
          {"native_us", plan.native_us},
          {"native_gbps", rate_gbps(plan.bytes(), plan.native_us)},
          {"limit_gbps", plan.limit_gbps},
          {"transfers", std::move(transfers)}};
}

json to_json(const std::vector<OptionInfo>& options) {
  json rows = json::array();
  for (const OptionInfo& option : options)
    rows.push_back({{"name", option.name},
                    {"environment", option.environment},
                    {"value", option.value},
                    {"origin", to_string(option.origin)},
                    {"default", option.default_value},
                    {"allowed", option.allowed},
                    {"meaning", option.meaning}});
  return rows;
}

json topology_json(const Context& context) {
  json node = to_json(context.node());
  node["simulated"] = context.source().simulated;
  node["virtual_time"] = context.source().virtual_time;
  node["fingerprint"] = context.source().fingerprint;
  node["capacities"] = to_string(context.source().capacities);
  node["emulated_mesh"] = emulated_mesh_json(context);
  return node;
}

json devices_json(Context& context) {
  const NodeSource& source = context.source();
  const CudaDriver& driver = context.driver();
  int cuda_version = 0;
  POLYPATH_CHECK(driver, driver_get_version(&cuda_version));

  json devices = json::array();
  for (int gpu = 0; gpu < context.devices().count(); ++gpu) {
    const Gpu& gpu_info = source.node.gpus[static_cast<std::size_t>(gpu)];
    // Free memory can be asked only within a context, and none is made just to ask.
    const CUcontext active = context.devices().context_if_active(gpu);
    json free_bytes;
    if (active != nullptr) {
      ContextGuard guard(driver);
      guard.use(active);
      std::size_t free = 0;
      std::size_t total = 0;
      POLYPATH_CHECK(driver, mem_get_info(&free, &total));
      free_bytes = free;
    }
    devices.push_back({{"id", to_string(MemoryId::gpu(gpu))},
                       {"name", gpu_info.name},
                       {"memory_bytes", gpu_info.memory_bytes},
                       {"free_bytes", std::move(free_bytes)},
                       {"context_active", active != nullptr}});
  }
  json staging = json::array();
  for (const MemoryId memory : context.node().memories()) {
    const RingLimits& rings = context.resources().ring_limits();
    const StagingReason reason =
        memory.is_gpu() ? context.devices().may_stage(memory.index, rings.gpu)
        : context.devices().pinned().has_room(rings.host) ? StagingReason::allowed
                                                          : StagingReason::little_memory;
    staging.push_back({{"memory", to_string(memory)},
                       {"allowed", reason == StagingReason::allowed},
                       {"reason", to_string(reason)},
                       {"bytes", context.resources().staging_bytes(memory)}});
  }
  return {{"driver",
           {{"library", driver.library},
            {"cuda_version", cuda_version},
            {"driver_version", source.driver_version}}},
          {"simulated", source.simulated},
          {"nvml", source.nvml != nullptr},
          {"kernels", !link_copy_image().empty()},
          {"library", own_directory()},
          {"version", polypath::version()},
          {"graphs",
           {{"supported", has_memcpy_graphs(driver)},
            {"cache_size", context.options().graph_cache_size},
            {"counts", graphs_json(context)}}},
          // A path is bytes, of which "file" has those that are UTF-8.
          {"profile",
           {{"file", source.profile_file},
            {"file_hex", hex_of(source.profile_file)},
            {"state", context.profile_state()}}},
          {"devices", std::move(devices)},
          {"staging", std::move(staging)}};
}

json load_json(Context& context) {
  json links = json::array();
  for (const LinkLoadInfo& info : context.load().loads()) {
    const Link& link = context.node().links[static_cast<std::size_t>(info.link)];
    json processes = json::array();
    for (const auto& [pid, busy_ns] : info.busy_ns)
      processes.push_back({{"pid", pid}, {"busy_us", static_cast<double>(busy_ns) / 1e3}});
    links.push_back({{"from", to_string(link.from)},
                     {"to", to_string(link.to)},
                     {"gbps", link.gbps},
                     {"loaded", info.state.source != LoadSource::none},
                     {"source", to_string(info.state.source)},
                     {"pid", info.state.pid != 0 ? json(info.state.pid) : json()},
                     {"wait_us", info.state.wait_us},
                     {"processes", std::move(processes)}});
  }
  return {{"time_us", static_cast<double>(context.load().now_ns()) / 1e3},
          {"links", std::move(links)}};
}

json loaded_json(Context& context, const Plan& plan) {
  json loaded = json::array();
  const auto is_passed = [&](const Link& link) {
    const auto between = [&](MemoryId memory) {
      return std::ranges::any_of(plan.transfers, [&](const TransferPlan& transfer) {
        const auto uses = [&](const Route& route) {
          return std::ranges::any_of(route.legs, [&](int leg) {
            const Link& host_link = context.node().links[static_cast<std::size_t>(leg)];
            return host_link.from == memory || host_link.to == memory;
          });
        };
        return std::ranges::any_of(transfer.routes, uses, &RouteShare::route) ||
               std::ranges::any_of(transfer.excluded, uses, &ExcludedRoute::route);
      });
    };
    return between(link.from) && between(link.to);
  };
  for (json& link : load_json(context)["links"]) {
    if (!link["loaded"].get<bool>()) continue;
    const auto index = context.node().find_link(parse_memory(link["from"].get<std::string>()),
                                                parse_memory(link["to"].get<std::string>()));
    if (index && is_passed(context.node().links[static_cast<std::size_t>(*index)]))
      loaded.push_back(std::move(link));
  }
  return loaded;
}

namespace {

template <typename ByReason>
json reasons_json(const ByReason& counts) {
  json by_reason = json::object();
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] != 0) by_reason[std::string(to_string(static_cast<NativeReason>(i)))] = counts[i];
  return by_reason;
}

using RouteCounts = std::map<Counters::RouteKey, Counters::RouteCount>;

json routes_json(const RouteCounts& counts, const char* unit) {
  json routes = json::array();
  for (const auto& [key, count] : counts)
    routes.push_back({{"src", to_string(key.src)},
                      {"dst", to_string(key.dst)},
                      {"route", key.route},
                      {unit, count.transfers},
                      {"bytes", count.bytes}});
  return routes;
}

json batches_json(const Counters::Snapshot::Batches& batches) {
  return {{"calls", batches.calls},
          {"large", batches.large},
          {"native", batches.native},
          {"native_bytes", batches.native_bytes},
          {"native_by_reason", reasons_json(batches.native_by_reason)},
          {"routes", routes_json(batches.routes, "entries")}};
}

json spreads_json(const Counters::Snapshot::Spreads& spreads) {
  return {{"calls", spreads.calls},
          {"native", spreads.native},
          {"pageable", spreads.pageable},
          {"native_by_reason", reasons_json(spreads.native_by_reason)},
          {"routes", routes_json(spreads.routes, "calls")}};
}

}  // namespace

json spread_json(const Node& node, const SpreadTrees& trees, const SpreadPlan& plan) {
  const auto gbps = [&](double us) {
    return us > 0 ? static_cast<double>(plan.bytes) / (us * kBytesPerGbpsUs) : 0;
  };
  const auto link_json = [&](int index) {
    const Link& link = node.links[static_cast<std::size_t>(index)];
    return json{{"from", to_string(link.from)}, {"to", to_string(link.to)}};
  };
  json gpus = json::array();
  for (const int gpu : trees.gpus) gpus.push_back(to_string(MemoryId::gpu(gpu)));
  json parts = json::array();
  for (const SpreadShare& share : plan.shares) {
    const SpreadTree& tree = trees.trees[share.tree];
    json forward = json::array();
    for (const int link : tree.forward) forward.push_back(link_json(link));
    parts.push_back({{"gpu", to_string(MemoryId::gpu(tree.gpu))},
                     {"bytes", share.bytes},
                     {"share", static_cast<double>(share.bytes) / static_cast<double>(plan.bytes)},
                     {"chunk_bytes", share.chunk_bytes},
                     {"rate_gbps", tree.gbps},
                     {"feed", link_json(tree.feed)},
                     {"forward", std::move(forward)}});
  }
  return {{"src", to_string(trees.src)},
          {"gpus", std::move(gpus)},
          {"bytes", plan.bytes},
          {"native", plan.native()},
          {"reason", plan.reason},
          {"chunks", plan.chunks},
          {"predicted_us", plan.predicted_us},
          {"predicted_gbps", gbps(plan.predicted_us)},
          {"native_us", plan.native_us},
          {"native_gbps", gbps(plan.native_us)},
          {"limit_gbps", trees.limit_gbps},
          {"parts", std::move(parts)}};
}

json counters_json(Context& context) {
  const Counters::Snapshot counts = context.counters().snapshot();
  const auto native = std::accumulate(counts.native.begin(), counts.native.end(), std::uint64_t{0});
  json excluded = json::object();
  for (std::size_t i = 0; i < counts.excluded.size(); ++i)
    if (counts.excluded[i] != 0)
      excluded[std::string(to_string(static_cast<ExclusionReason>(i)))] = counts.excluded[i];
  json links = json::array();
  for (const auto& [index, count] : counts.links) {
    const Link& link = context.node().links[static_cast<std::size_t>(index)];
    links.push_back({{"from", to_string(link.from)},
                     {"to", to_string(link.to)},
                     {"bytes", count.bytes},
                     {"copies", count.copies}});
  }
  const SharedMappings::Counts shared = context.shared_mappings().counts();
  json staging = json::array();
  for (const MemoryId memory : context.node().memories())
    if (const auto bytes = context.resources().staging_bytes(memory); bytes != 0)
      staging.push_back({{"memory", to_string(memory)}, {"bytes", bytes}});
  return {{"transfers", counts.split + native},
          {"split", counts.split},
          {"followed", counts.followed},
          {"pageable", counts.pageable},
          {"files", counts.files},
          {"native", native},
          {"failed", counts.failed},
          {"changed_by_load", counts.changed_by_load},
          {"bytes", counts.bytes},
          {"copies", counts.copies},
          {"native_by_reason", reasons_json(counts.native)},
          {"left_out_by_reason", std::move(excluded)},
          {"routes", routes_json(counts.routes, "transfers")},
          {"links", std::move(links)},
          {"batches", batches_json(counts.batches)},
          {"spreads", spreads_json(counts.spreads)},
          {"graphs", graphs_json(context)},
          {"pinned",
           {{"bytes", PinnedBudget::used()}, {"limit_bytes", context.devices().pinned().limit()}}},
          {"shared_mappings", {{"granted", shared.granted}, {"refused", shared.refused}}},
          {"staging", std::move(staging)}};
}

json tuned_json(const Context& context) {
  json all = {{"profile", context.source().profile_file}};
  context.tuned_to_json(all);
  return all;
}

}  // namespace polypath
