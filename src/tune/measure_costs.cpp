#include "tune/measure_costs.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include "base/units.hpp"
#include "tune/group_timer.hpp"
#include "tune/median.hpp"

namespace polypath {
namespace {

/// Calls in a row whose CPU time is measured; few enough for the driver's queue.
constexpr int kCalls = 64;
constexpr std::uint64_t kIssueBytes = 64 * kKiB;
/// Copies in a row, large enough that the CPU is ahead of them.
constexpr std::uint64_t kCopies = 9;

/// The link that stands for all: a copy that GPU 0 issues.
const Link& probed_link(const Node& node) {
  const auto from_first = [](const Link& link) { return link.from == MemoryId::gpu(0); };
  const auto peer = std::ranges::find_if(node.links, [&](const Link& link) {
    return from_first(link) && link.to.is_gpu() && link.type != LinkType::bounce;
  });
  return peer != node.links.end() ? *peer : *std::ranges::find_if(node.links, from_first);
}

class CostProbe {
 public:
  CostProbe(Lanes& lanes, const Link& link, int repetitions)
      : driver_(lanes.driver()),
        repetitions_(repetitions),
        current_(driver_, lanes.context(link.from.index)),
        src_(lanes.buffer(link.from, 0)),
        dst_(lanes.buffer(link.to, 0)),
        first_(lanes.stream(link.from.index, 0)),
        second_(lanes.stream(link.from.index, 1)),
        event_(driver_, lanes.context(link.from.index), CU_EVENT_DISABLE_TIMING),
        copy_bytes_(lanes.copy_bytes(1) / kCopies / kIssueBytes * kIssueBytes) {}

  double call_us() {
    const double total = cpu_us([&] {
      for (int i = 0; i < kCalls / 2; ++i) {
        POLYPATH_CHECK(driver_, event_record(event_.get(), second_));
        POLYPATH_CHECK(driver_, stream_wait_event(second_, event_.get(), 0));
      }
    });
    return total / (kCalls + 1);  // the end event is one such call too
  }

  double copy_issue_us(double call_us) {
    const double total = cpu_us([&] {
      for (int i = 0; i < kCalls; ++i) copy(kIssueBytes, second_);
    });
    return std::max(0.0, total - call_us) / kCalls;
  }

  /// From the copy's call to its first byte: that call begins one event record after the start.
  double copy_start_us(double call_us) {
    const double small = repeat({{first_}}, [&] { copy(copy_bytes_, first_); });
    const double large = repeat({{first_}}, [&] { copy(2 * copy_bytes_, first_); });
    return std::max(0.0, 2 * small - large - call_us);
  }

  double copy_gap_us() {
    const double queued = device_us([&] {
      for (std::uint64_t i = 0; i < kCopies; ++i) copy(copy_bytes_, first_);
    });
    const double whole = device_us([&] { copy(kCopies * copy_bytes_, first_); });
    return std::max(0.0, queued - whole) / (kCopies - 1);
  }

  /// Of copies that wait for each other by events, against copies queued on one stream.
  double event_us(double copy_gap_us, double copy_start_us) {
    const double queued = device_us([&] {
      for (std::uint64_t i = 0; i < kCopies; ++i) copy(copy_bytes_, first_);
    });
    const double waiting = device_us([&] {
      for (std::uint64_t i = 0; i < kCopies; ++i) {
        const std::array streams{first_, second_};
        const CUstream stream = streams[i % 2];
        if (i > 0) POLYPATH_CHECK(driver_, stream_wait_event(stream, event_.get(), 0));
        copy(copy_bytes_, stream);
        POLYPATH_CHECK(driver_, event_record(event_.get(), stream));
      }
    });
    return std::max(0.0, (waiting - queued) / (kCopies - 1) + copy_gap_us - copy_start_us);
  }

 private:
  void copy(std::uint64_t bytes, CUstream stream) {
    POLYPATH_CHECK(driver_, memcpy_async(dst_, src_, bytes, stream));
  }

  double repeat(std::span<const CUstream> timed, const std::function<void()>& issue) {
    GroupTimer timer(driver_, timed);
    std::vector<double> samples;
    for (int i = 0; i < repetitions_ + 1; ++i) {
      const double us = timer.run(issue);
      if (i > 0) samples.push_back(us);  // the first one warms up
      POLYPATH_CHECK(driver_, stream_synchronize(second_));
    }
    return median(samples);
  }

  /// CPU time of calls on the second stream: the first one is idle, so its events show when they were
  /// issued.
  double cpu_us(const std::function<void()>& calls) { return repeat({{first_}}, calls); }

  double device_us(const std::function<void()>& copies) {
    return repeat({{first_, second_}}, copies);
  }

  const CudaDriver& driver_;
  int repetitions_;
  CurrentContext current_;
  CUdeviceptr src_;
  CUdeviceptr dst_;
  CUstream first_;
  CUstream second_;
  Event event_;
  std::uint64_t copy_bytes_;
};

}  // namespace

Costs measure_costs(Lanes& lanes, int repetitions) {
  CostProbe probe(lanes, probed_link(lanes.node()), repetitions);
  Costs costs = lanes.node().costs;
  costs.call_us = probe.call_us();
  costs.copy_issue_us = probe.copy_issue_us(costs.call_us);
  costs.copy_start_us = probe.copy_start_us(costs.call_us);
  costs.copy_gap_us = probe.copy_gap_us();
  costs.event_us = probe.event_us(costs.copy_gap_us, costs.copy_start_us);
  return costs;
}

}  // namespace polypath
