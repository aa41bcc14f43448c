#include "lab/bench_file.hpp"

#include "base/units.hpp"

namespace polypath {

using nlohmann::json;

json bench_file(Context& context, const FileRequest& request, const PairOptions& options) {
  FileSet set(context, request);
  set.verify("native", [&] { set.issue_native(); });
  set.verify("polypath", [&] { set.issue_polypath(); });
  PairOptions pairs = options;
  pairs.clock = cpu_clock(context.source());
  const auto before = context.counters().snapshot();
  const PairSamples samples = measure_pairs(
      context.driver(), set.streams(), [&] { set.issue_native(); }, [&] { set.issue_polypath(); },
      pairs);
  const auto after = context.counters().snapshot();
  set.verify("polypath", [&] { set.issue_polypath(); });

  const auto all = static_cast<double>(set.bytes()) * (options.warmup + options.iterations);
  double by_threads = 0;
  json routes = json::array();
  for (const auto& [key, count] : after.routes) {
    const auto known = before.routes.find(key);
    const std::uint64_t bytes =
        count.bytes - (known == before.routes.end() ? 0 : known->second.bytes);
    if (bytes == 0) continue;
    const double share = static_cast<double>(bytes) / all;
    by_threads += share;
    routes.push_back({{"route", key.route}, {"share", share}});
  }
  const double native_us = samples.native.median_device_us();
  const double polypath_us = samples.polypath.median_device_us();
  return {{"src", "file"},
          {"dst", to_string(request.dst)},
          {"bytes", set.bytes()},
          {"native", "mmap"},
          {"native_us", native_us},
          {"polypath_us", polypath_us},
          {"native_gbps", rate_gbps(set.bytes(), native_us)},
          {"polypath_gbps", rate_gbps(set.bytes(), polypath_us)},
          {"speedup", polypath_us > 0 ? native_us / polypath_us : 0.0},
          {"threads", context.copy_threads()},
          {"native_share", std::max(0.0, 1 - by_threads)},
          {"routes", std::move(routes)},
          {"verified", true}};
}

}  // namespace polypath
