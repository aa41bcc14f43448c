#include "lab/bench.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

#include "base/units.hpp"
#include "core/json.hpp"
#include "lab/pairs.hpp"

namespace polypath {
namespace {

using nlohmann::json;

constexpr int kLimitRepetitions = 5;
constexpr std::uint64_t kLimitBytes = 64 * kMiB;

/// Bytes of split transfers that went each way, by route and by link.
struct Traffic {
  std::map<Counters::RouteKey, std::uint64_t> routes;
  std::map<int, std::uint64_t> links;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

Traffic counted(Context& context) {
  Traffic traffic;
  const auto snapshot = context.counters().snapshot();
  for (const auto& [key, count] : snapshot.routes) traffic.routes[key] = count.bytes;
  for (const auto& [link, count] : snapshot.links) traffic.links[link] = count.bytes;
  return traffic;
}

/// `before` plus what one run of the plan moves.
Traffic expected(Traffic before, const Plan& plan) {
  for (const TransferPlan& transfer : plan.transfers) {
    if (transfer.native()) continue;
    for (const RouteShare& share : transfer.routes) {
      before.routes[{transfer.request.src, transfer.request.dst, to_string(share.route)}] +=
          share.bytes;
      for (const int leg : share.route.legs) before.links[leg] += share.bytes;
    }
  }
  return before;
}

/// How the transfers between two counts went; shares are of all bytes.
json went(const Counters::Snapshot& before, const Counters::Snapshot& after, std::uint64_t graphs) {
  const auto bytes = static_cast<double>(after.bytes - before.bytes);
  double split_share = 0;
  json routes = json::array();
  for (const auto& [key, count] : after.routes) {
    const auto known = before.routes.find(key);
    const std::uint64_t moved =
        count.bytes - (known == before.routes.end() ? 0 : known->second.bytes);
    if (moved == 0) continue;
    const double share = static_cast<double>(moved) / bytes;
    split_share += share;
    routes.push_back({{"src", to_string(key.src)},
                      {"dst", to_string(key.dst)},
                      {"route", key.route},
                      {"share", share}});
  }
  return {{"split", after.split - before.split},
          {"graphs", graphs},
          {"native_share", bytes > 0 ? std::max(0.0, 1 - split_share) : 0.0},
          {"routes", std::move(routes)}};
}

}  // namespace

void Bench::verify_polypath(TransferSet& set, const PreparedPlan& plan, int window) {
  const Traffic before = counted(context_);
  const std::uint64_t bytes_before = context_.counters().snapshot().bytes;
  set.verify("polypath", [&] { set.issue_polypath(&plan); });
  // Some transfers of a window may find routes busy, and exclude them.
  const bool as_planned = window > 1
                              ? context_.counters().snapshot().bytes == bytes_before + set.bytes()
                              : counted(context_) == expected(before, plan.plan);
  if (!as_planned) throw Error("the polypath copy did not go the way of the plan");
}

double Bench::all_gpus_at_once(bool to_host) {
  const Node& node = context_.node();
  if (measuring_ == nullptr)
    measuring_ = std::make_unique<MeasurementContext>(context_.driver(), node, kLimitBytes);
  std::vector<int> links;
  for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu) {
    const MemoryId device = MemoryId::gpu(static_cast<int>(gpu));
    const MemoryId host = MemoryId::host(node.gpus[gpu].numa);
    const auto link = to_host ? node.find_link(device, host) : node.find_link(host, device);
    if (link) links.push_back(*link);
  }
  return measure_together_gbps(*measuring_, links, kLimitRepetitions);
}

json Bench::executors(TransferSet& set, const std::vector<Request>& requests, const Plan& plan,
                      const PairOptions& options) {
  Planner& planner = context_.planner();
  const TransferConfig choice = choice_of(plan);
  const auto streams = planner.plan_of(requests, choice, ExecutorKind::stream);
  const auto graphs = planner.plan_of(requests, choice, ExecutorKind::graph);
  if (streams == nullptr) return nullptr;
  const PairSamples samples = set.compare(*streams, *graphs, options);
  return {{"stream_us", samples.native.median_device_us()},
          {"graph_us", samples.polypath.median_device_us()},
          {"stream_issue_us", samples.native.median_issue_us()},
          {"graph_issue_us", samples.polypath.median_issue_us()}};
}

json Bench::run(const std::vector<Request>& requests, const PairOptions& options, int window,
                bool compare_executors) {
  const Plan plan = context_.plan(requests);
  const bool is_pageable = requests.front().is_pageable;
  // What the row names serves on idle streams as well.
  PreparedPlan named = is_pageable ? PreparedPlan{} : *context_.planner().plan(requests, 0);
  named.on_idle_stream = nullptr;
  TransferSet set(context_, requests, window);

  const Traffic before = counted(context_);
  set.verify("native", [&] { set.issue_native(); });
  if (counted(context_) != before) throw Error("the native copy was split");
  const auto verify = [&] {
    if (!is_pageable) return verify_polypath(set, named, window);
    // Threads that were slower than the driver are not tried each time.
    const auto by_threads = [&] {
      const auto counts = context_.counters().snapshot();
      return counts.pageable + counts.native[static_cast<std::size_t>(NativeReason::threads_slow)];
    };
    const std::uint64_t before_it = by_threads();
    set.verify("polypath", [&] { set.issue_polypath(); });
    const auto expected_count = plan.native() ? 0 : static_cast<std::uint64_t>(window);
    if (by_threads() != before_it + expected_count)
      throw Error("the polypath copy did not go the way of the plan");
  };
  verify();
  PairOptions behind_work = options;
  behind_work.ahead = set.ahead();
  behind_work.clock = cpu_clock(context_.source());
  const auto counts_before = context_.counters().snapshot();
  const std::uint64_t graphs_before = context_.graph_counts().launches;
  const PairSamples samples = measure_pairs(
      context_.driver(), set.streams(), [&] { set.issue_native(); },
      [&] { set.issue_polypath(is_pageable ? nullptr : &named); }, behind_work);
  json as_counted = went(counts_before, context_.counters().snapshot(),
                         context_.graph_counts().launches - graphs_before);
  verify();
  json compared;
  if (compare_executors && !plan.native() && !is_pageable)
    compared = executors(set, requests, plan, behind_work);

  double limit_gbps = plan.limit_gbps;
  const char* limit_from = "flow";
  const Request& first = requests.front();
  if (requests.size() == 1 && !context_.source().simulated &&
      (first.src.is_host() || first.dst.is_host())) {
    limit_gbps = all_gpus_at_once(first.dst.is_host());
    limit_from = "measured";
  }

  const double native_us = samples.native.median_device_us();
  const double polypath_us = samples.polypath.median_device_us();
  const json described = to_json(plan);
  json routes = json::array();
  std::size_t copies = 0;
  for (const json& transfer : described["transfers"]) {
    for (const json& route : transfer["routes"]) {
      copies += route["chunks"].get<std::size_t>() * (route["kind"] == "direct" ? 1 : 2);
      routes.push_back({{"src", transfer["src"]},
                        {"dst", transfer["dst"]},
                        {"route", route["route"]},
                        {"share", route["share"]},
                        {"chunks", route["chunks"]},
                        {"bytes", route["bytes"]}});
    }
  }
  return {{"bytes", first.bytes},
          {"window", window},
          {"native_us", native_us},
          {"polypath_us", polypath_us},
          {"native_gbps", rate_gbps(set.bytes(), native_us)},
          {"polypath_gbps", rate_gbps(set.bytes(), polypath_us)},
          {"speedup", polypath_us > 0 ? native_us / polypath_us : 0.0},
          {"limit_gbps", limit_gbps},
          {"limit_from", limit_from},
          {"predicted_us", plan.predicted_us},
          {"verified", true},
          {"executor", to_string(named.executor)},
          {"issue_us", samples.polypath.median_issue_us()},
          {"native_issue_us", samples.native.median_issue_us()},
          {"copies", copies},
          {"routes", std::move(routes)},
          {"counted", std::move(as_counted)},
          {"native", plan.native()},
          {"reason", plan.reason},
          {"executors", std::move(compared)}};
}

}  // namespace polypath
