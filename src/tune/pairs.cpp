#include "tune/pairs.hpp"

#include <chrono>

#include "base/error.hpp"
#include "tune/group_timer.hpp"
#include "tune/median.hpp"

namespace polypath {

double steady_clock_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

double WaySamples::median_device_us() const { return median(device_us); }
double WaySamples::median_issue_us() const { return median(issue_us); }

PairSamples measure_pairs(const CudaDriver& driver, std::span<const CUstream> streams,
                          const std::function<void()>& native,
                          const std::function<void()>& polypath, const PairOptions& options) {
  if (options.iterations < 1) throw InvalidArgument("a measurement needs at least one iteration");
  GroupTimer timer(driver, streams);
  const auto measure = [&](const std::function<void()>& issue, WaySamples& samples) {
    double issue_us = 0;
    const double device_us = timer.run(
        [&] {
          const double before = options.clock();
          issue();
          issue_us = options.clock() - before;
        },
        options.ahead);
    samples.device_us.push_back(device_us);
    samples.issue_us.push_back(issue_us);
  };
  for (int i = 0; i < options.warmup; ++i) {
    timer.run(native, options.ahead);
    timer.run(polypath, options.ahead);
  }
  PairSamples samples;
  for (int i = 0; i < options.iterations; ++i) {
    measure(native, samples.native);
    measure(polypath, samples.polypath);
  }
  return samples;
}

}  // namespace polypath
