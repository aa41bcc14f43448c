#include "tune/measure_costs.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>

#include "base/units.hpp"
#include "exec/stream_executor.hpp"
#include "tune/group_timer.hpp"

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
  CostProbe(MeasurementContext& set, const Link& link, int repetitions)
      : driver_(set.driver()),
        repetitions_(repetitions),
        current_(driver_, set.context(link.from.index)),
        src_(set.buffer(link.from, 0)),
        dst_(set.buffer(link.to, 0)),
        first_(set.stream(link.from.index, 0)),
        second_(set.stream(link.from.index, 1)),
        event_(driver_, set.context(link.from.index), CU_EVENT_DISABLE_TIMING),
        copy_bytes_(set.copy_bytes(1) / kCopies / kIssueBytes * kIssueBytes) {}

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

  /// The cost of an event: copies that wait for each other by events, against copies queued on one
  /// stream.
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

  /// CPU time of calls on the second stream: the first one is idle, so its events show when they
  /// were issued.
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

constexpr std::uint64_t kSmallBytes = 64 * kKiB;
constexpr std::uint64_t kLargestChunk = kMiB;
constexpr int kChunks = 8;
/// The staged part is at most this part of the buffers; the rest is for the direct copy.
constexpr std::uint64_t kStagedPart = 4;
/// The part of the staged route's time that the direct copy next to it takes.
constexpr double kDirectPart = 0.7;

RouteShare share_of(const Route& route, std::uint64_t offset, std::uint64_t chunk_bytes,
                    int chunks) {
  RouteShare share;
  share.route = route;
  share.offset = offset;
  share.chunk_bytes = chunk_bytes;
  share.chunks = chunks;
  share.bytes = chunk_bytes * static_cast<std::uint64_t>(chunks);
  return share;
}

class StagingProbe {
 public:
  StagingProbe(MeasurementContext& set, const Route& direct, const Route& staged, int repetitions)
      : measuring_(set),
        direct_(direct),
        route_(staged),
        repetitions_(repetitions),
        driver_(std::shared_ptr<void>(), &set.driver()),
        // What it takes for moments must not fail because contexts have filled the limit.
        devices_(driver_, nullptr, set.node(), UINT64_MAX),
        resources_(driver_, set.node(), devices_, 64 * kMiB),
        executor_(driver_, resources_) {
    resources_.prepare(staged, 1);
  }

  /// Time of the staged route, next to a direct copy that ends before it. `staged_us`: an estimate
  /// of that time.
  double time_us(std::uint64_t chunk_bytes, int chunks, double staged_us) {
    const RouteShare staged = share_of(route_, 0, chunk_bytes, chunks);
    const double gbps = measuring_.node().links[static_cast<std::size_t>(direct_.legs[0])].gbps;
    const auto copies =
        static_cast<std::uint64_t>(kDirectPart * staged_us * gbps * kBytesPerGbpsUs);
    const RouteShare direct = share_of(
        direct_, staged.bytes, std::min(copies, measuring_.copy_bytes(1) - staged.bytes), 1);
    Plan plan;
    plan.transfers.push_back(
        {{MemoryId::gpu(0), MemoryId::gpu(1), direct.bytes + staged.bytes}, {direct, staged}, {}});
    const GroupSchedule schedule = make_schedule(plan, resources_.ring_limits());
    const std::array streams{measuring_.stream(0, 0)};
    GroupTimer timer(*driver_, streams);
    std::vector<double> samples;
    for (int i = 0; i < repetitions_ + 1; ++i) {
      const double us = timer.run([&] { issue(schedule, streams.front()); });
      if (i > 0) samples.push_back(us);  // the first one warms up
    }
    return median(samples);
  }

 private:
  void issue(const GroupSchedule& schedule, CUstream stream) {
    std::vector<BoundTransfer> transfers(1);
    BoundTransfer& transfer = transfers.front();
    transfer.dst = measuring_.buffer(MemoryId::gpu(1), 0);
    transfer.src = measuring_.buffer(MemoryId::gpu(0), 0);
    transfer.caller = {measuring_.context(0), stream, 0};
    transfer.ends.resize(2, {transfer.dst, transfer.src});
    const RunResult result = executor_.run(schedule, transfers);
    if (result.error != nullptr) std::rethrow_exception(result.error);
    // Nothing else runs on these resources.
    if (!result.done()) throw Error("a staged route could not be measured");
  }

  MeasurementContext& measuring_;
  Route direct_;
  Route route_;
  int repetitions_;
  std::shared_ptr<const CudaDriver> driver_;  // owned by the caller of the measurement
  Devices devices_;
  RouteResources resources_;
  StreamExecutor executor_;
};

}  // namespace

Costs measure_costs(MeasurementContext& set, int repetitions) {
  CostProbe probe(set, probed_link(set.node()), repetitions);
  Costs costs = set.node().costs;
  costs.call_us = probe.call_us();
  costs.copy_issue_us = probe.copy_issue_us(costs.call_us);
  costs.copy_start_us = probe.copy_start_us(costs.call_us);
  costs.copy_gap_us = probe.copy_gap_us();
  costs.event_us = probe.event_us(costs.copy_gap_us, costs.copy_start_us);
  return costs;
}

Costs measure_staging(MeasurementContext& set, Costs costs, int repetitions) {
  const Node& node = set.node();
  if (node.gpus.size() < 2) return costs;
  const auto routes = find_routes(node, MemoryId::gpu(0), MemoryId::gpu(1), {});
  const auto staged = std::find_if(routes.rbegin(), routes.rend(),
                                   [](const Route& route) { return route.staged(); });
  if (staged == routes.rend() || routes.front().staged()) return costs;
  const auto leg_us = [&](std::size_t leg, std::uint64_t bytes) {
    return transfer_us(bytes, node.links[static_cast<std::size_t>(staged->legs[leg])].gbps);
  };

  StagingProbe probe(set, routes.front(), *staged, repetitions);
  const double small = probe.time_us(kSmallBytes, 1, 2 * costs.copy_start_us);
  costs.staged_fixed_us =
      std::max(0.0, small - leg_us(0, kSmallBytes) - leg_us(1, kSmallBytes) - costs.copy_gap_us);
  const std::uint64_t chunk =
      std::min(kLargestChunk, set.copy_bytes(1) / (kStagedPart * std::uint64_t{kChunks}));
  const double slower = std::max(leg_us(0, chunk), leg_us(1, chunk));
  const double faster = std::min(leg_us(0, chunk), leg_us(1, chunk));
  const double pipeline = probe.time_us(chunk, kChunks, (kChunks + 1) * slower);
  costs.staged_gap_us = std::max(
      costs.copy_gap_us, (pipeline - costs.staged_fixed_us - kChunks * slower - faster) / kChunks);
  return costs;
}

}  // namespace polypath
