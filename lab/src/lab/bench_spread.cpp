#include "lab/bench_spread.hpp"

#include <map>
#include <string>

#include "base/units.hpp"

namespace polypath {

using nlohmann::json;

json bench_spread(Context& context, const SpreadRequest& request, const PairOptions& options) {
  SpreadSet set(context, request);
  set.verify("native", [&] { set.issue_native(); });
  set.verify("polypath", [&] { set.issue_polypath(); });
  PairOptions pairs = options;
  pairs.clock = cpu_clock(context.source());
  pairs.ahead = set.ahead();
  const auto before = context.counters().snapshot().spreads;
  const PairSamples samples = measure_pairs(
      context.driver(), set.streams(), [&] { set.issue_native(); }, [&] { set.issue_polypath(); },
      pairs);
  const auto after = context.counters().snapshot().spreads;
  set.verify("polypath", [&] { set.issue_polypath(); });

  // What each GPU fetched itself; what is sent on is the same once more for each other one.
  const auto all = static_cast<double>(set.bytes()) * (options.warmup + options.iterations);
  std::map<std::string, std::uint64_t> fetched;
  for (const auto& [key, count] : after.routes) {
    if (key.route != "direct") continue;
    const auto known = before.routes.find(key);
    fetched[to_string(key.dst)] +=
        count.bytes - (known == before.routes.end() ? 0 : known->second.bytes);
  }
  json parts = json::array();
  for (const auto& [gpu, bytes] : fetched)
    if (bytes > 0) parts.push_back({{"gpu", gpu}, {"share", static_cast<double>(bytes) / all}});
  json gpus = json::array();
  for (const int gpu : request.gpus) gpus.push_back(to_string(MemoryId::gpu(gpu)));
  const double native_us = samples.native.median_device_us();
  const double polypath_us = samples.polypath.median_device_us();
  return {
      {"src", to_string(request.src) + (request.is_pageable ? ":pageable" : "")},
      {"gpus", std::move(gpus)},
      {"bytes", set.bytes()},
      {"native_us", native_us},
      {"polypath_us", polypath_us},
      {"native_gbps", rate_gbps(set.bytes(), native_us)},
      {"polypath_gbps", rate_gbps(set.bytes(), polypath_us)},
      {"speedup", polypath_us > 0 ? native_us / polypath_us : 0.0},
      {"limit_gbps", context.plan_spread(request.src, request.gpus, set.bytes()).first.limit_gbps},
      {"native_issue_us", samples.native.median_issue_us()},
      {"issue_us", samples.polypath.median_issue_us()},
      {"calls", after.calls - before.calls},
      {"native_calls", after.native - before.native},
      {"parts", std::move(parts)},
      {"verified", true}};
}

}  // namespace polypath
