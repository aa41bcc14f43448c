#include "lab/bench_blocks.hpp"

#include <string>

#include "base/units.hpp"

namespace polypath {

using nlohmann::json;

json bench_blocks(Context& context, const BlocksRequest& request, const PairOptions& options) {
  BlockSet set(context, request);
  set.verify("native", [&] { set.issue_native(); });
  set.verify("polypath", [&] { set.issue_polypath(); });
  PairOptions pairs = options;
  pairs.clock = cpu_clock(context.source());
  const auto before = context.counters().snapshot().batches;
  const PairSamples samples = measure_pairs(
      context.driver(), set.streams(), [&] { set.issue_native(); }, [&] { set.issue_polypath(); },
      pairs);
  const auto after = context.counters().snapshot().batches;
  json queued;
  if (pairs.ahead = set.work_ahead(); pairs.ahead) {
    const PairSamples after_work = measure_pairs(
        context.driver(), set.streams(), [&] { set.issue_native(); }, [&] { set.issue_polypath(); },
        pairs);
    queued = {{"native_gbps", rate_gbps(set.bytes(), after_work.native.median_device_us())},
              {"polypath_gbps", rate_gbps(set.bytes(), after_work.polypath.median_device_us())}};
  }
  set.verify("polypath", [&] { set.issue_polypath(); });

  const auto all = static_cast<double>(set.bytes()) * (options.warmup + options.iterations);
  json routes = json::array();
  for (const auto& [key, count] : after.routes) {
    const auto known = before.routes.find(key);
    const std::uint64_t bytes =
        count.bytes - (known == before.routes.end() ? 0 : known->second.bytes);
    if (bytes > 0)
      routes.push_back({{"route", key.route}, {"share", static_cast<double>(bytes) / all}});
  }
  const double native_us = samples.native.median_device_us();
  const double polypath_us = samples.polypath.median_device_us();
  return {{"src", to_string(request.src)},
          {"dst", to_string(request.dst)},
          {"block_bytes", request.block_bytes},
          {"count", request.count},
          {"bytes", set.bytes()},
          {"native", set.has_native_batch() ? "batch" : "copies"},
          {"native_us", native_us},
          {"polypath_us", polypath_us},
          {"native_gbps", rate_gbps(set.bytes(), native_us)},
          {"polypath_gbps", rate_gbps(set.bytes(), polypath_us)},
          {"speedup", polypath_us > 0 ? native_us / polypath_us : 0.0},
          {"native_issue_us", samples.native.median_issue_us()},
          {"issue_us", samples.polypath.median_issue_us()},
          {"native_share", static_cast<double>(after.native_bytes - before.native_bytes) / all},
          {"routes", std::move(routes)},
          {"queued", std::move(queued)},
          {"verified", true}};
}

}  // namespace polypath
