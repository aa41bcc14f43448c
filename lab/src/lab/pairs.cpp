#include "lab/pairs.hpp"

#include <chrono>

#include "base/error.hpp"
#include "driver/library.hpp"
#include "tune/group_timer.hpp"

namespace polypath {
namespace {

/// Found by name, as the simulated driver itself: no driver of hardware has it (polypath_sim.h).
constexpr const char* kVirtualClock = "polypath_sim_clock_us";
constexpr const char* kIssuing = "polypath_sim_set_issuer";

}  // namespace

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

std::function<void(bool)> issuing_notice(const NodeSource& source) {
  const auto no_callback = [](bool /*issuing*/) {};
  if (!source.simulated) return no_callback;
  void* const library = open_library(source.driver->library, nullptr);
  if (library == nullptr) return no_callback;
  auto* const notice = find_symbol<void (*)(int)>(library, kIssuing);
  if (notice == nullptr) return no_callback;
  return [notice](bool issuing) { notice(issuing ? 1 : 0); };
}

ClockFunction cpu_clock(const NodeSource& source) {
  if (!source.simulated) return steady_clock_us;
  void* const library = open_library(source.driver->library, nullptr);
  if (library == nullptr) return steady_clock_us;
  auto* const clock = find_symbol<double (*)()>(library, kVirtualClock);
  return clock != nullptr ? ClockFunction(clock) : ClockFunction(steady_clock_us);
}

}  // namespace polypath
