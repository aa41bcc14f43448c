#include "tune/measure_staging.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/units.hpp"
#include "exec/stream_executor.hpp"
#include "tune/group_timer.hpp"
#include "tune/median.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kSmallBytes = 64 * kKiB;
constexpr std::uint64_t kLargestChunk = kMiB;
constexpr int kChunks = 8;
/// The staged part is at most this part of the buffers; the rest is for the direct copy.
constexpr std::uint64_t kStagedPart = 4;
/// Of the staged route's time, the part that the direct copy beside it takes.
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
  StagingProbe(Lanes& lanes, const Route& direct, const Route& staged, int repetitions)
      : lanes_(lanes),
        direct_(direct),
        route_(staged),
        repetitions_(repetitions),
        driver_(std::shared_ptr<void>(), &lanes.driver()),
        devices_(driver_, static_cast<int>(lanes.node().gpus.size())),
        resources_(driver_, lanes.node(), devices_, 64 * kMiB),
        executor_(driver_, resources_) {
    resources_.prepare(staged, 1);
  }

  /// Of the staged route, beside a direct copy that ends before it: `staged_us` is about its time.
  double time_us(std::uint64_t chunk_bytes, int chunks, double staged_us) {
    const RouteShare staged = share_of(route_, 0, chunk_bytes, chunks);
    const double gbps = lanes_.node().links[static_cast<std::size_t>(direct_.legs[0])].gbps;
    const auto wanted =
        static_cast<std::uint64_t>(kDirectPart * staged_us * gbps * kBytesPerGbpsUs);
    const RouteShare direct =
        share_of(direct_, staged.bytes, std::min(wanted, lanes_.copy_bytes(1) - staged.bytes), 1);
    Plan plan;
    plan.transfers.push_back(
        {{MemoryId::gpu(0), MemoryId::gpu(1), direct.bytes + staged.bytes}, {direct, staged}, {}});
    const Schedule schedule = make_schedule(plan, resources_.ring_limits());
    const std::array streams{lanes_.stream(0, 0)};
    GroupTimer timer(*driver_, streams);
    std::vector<double> samples;
    for (int i = 0; i < repetitions_ + 1; ++i) {
      const double us = timer.run([&] { issue(schedule, streams.front()); });
      if (i > 0) samples.push_back(us);  // the first one warms up
    }
    return median(samples);
  }

 private:
  void issue(const Schedule& schedule, CUstream stream) {
    std::vector<BoundTransfer> transfers(1);
    BoundTransfer& transfer = transfers.front();
    transfer.dst = lanes_.buffer(MemoryId::gpu(1), 0);
    transfer.src = lanes_.buffer(MemoryId::gpu(0), 0);
    transfer.caller = {lanes_.context(0), stream, 0};
    transfer.ends.resize(2, {transfer.dst, transfer.src});
    const RunResult result = executor_.run(schedule, transfers);
    if (result.error != nullptr) std::rethrow_exception(result.error);
    // Nothing else runs on these resources.
    if (!result.done()) throw Error("a staged route could not be measured");
  }

  Lanes& lanes_;
  Route direct_;
  Route route_;
  int repetitions_;
  std::shared_ptr<const CudaDriver> driver_;  // owned by the caller of the measurement
  Devices devices_;
  RouteResources resources_;
  StreamExecutor executor_;
};

}  // namespace

Costs measure_staging(Lanes& lanes, Costs costs, int repetitions) {
  const Node& node = lanes.node();
  if (node.gpus.size() < 2) return costs;
  const auto routes = find_routes(node, MemoryId::gpu(0), MemoryId::gpu(1), {});
  const auto staged = std::find_if(routes.rbegin(), routes.rend(),
                                   [](const Route& route) { return route.staged(); });
  if (staged == routes.rend() || routes.front().staged()) return costs;
  const auto leg_us = [&](std::size_t leg, std::uint64_t bytes) {
    return transfer_us(bytes, node.links[static_cast<std::size_t>(staged->legs[leg])].gbps);
  };

  StagingProbe probe(lanes, routes.front(), *staged, repetitions);
  const double small = probe.time_us(kSmallBytes, 1, 2 * costs.copy_start_us);
  costs.staged_fixed_us =
      std::max(0.0, small - leg_us(0, kSmallBytes) - leg_us(1, kSmallBytes) - costs.copy_gap_us);
  const std::uint64_t chunk =
      std::min(kLargestChunk, lanes.copy_bytes(1) / (kStagedPart * std::uint64_t{kChunks}));
  const double slower = std::max(leg_us(0, chunk), leg_us(1, chunk));
  const double faster = std::min(leg_us(0, chunk), leg_us(1, chunk));
  const double pipeline = probe.time_us(chunk, kChunks, (kChunks + 1) * slower);
  costs.staged_gap_us = std::max(
      costs.copy_gap_us, (pipeline - costs.staged_fixed_us - kChunks * slower - faster) / kChunks);
  return costs;
}

}  // namespace polypath
