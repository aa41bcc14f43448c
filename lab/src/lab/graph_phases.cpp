#include "lab/graph_phases.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "driver/check.hpp"
#include "driver/cuda_driver.hpp"
#include "driver/resources.hpp"
#include "lab/staged_transfer.hpp"
#include "topology/node.hpp"
#include "tune/group_timer.hpp"
#include "tune/test_buffer.hpp"

namespace polypath {
namespace {

/// Two buffers of one size, the source with random contents. Transfers must have completed before
/// the destination is poisoned or checked. Every member may throw DriverError.
class CheckedPair {
 public:
  /// As TestBuffer. `driver` must outlive it.
  CheckedPair(const CudaDriver& driver, const Node& node, MemoryId src, MemoryId dst,
              std::uint64_t bytes);

  [[nodiscard]] CUdeviceptr src() const noexcept { return src_.address(); }
  [[nodiscard]] CUdeviceptr dst() const noexcept { return dst_.address(); }

  /// Fills the destination with what the source does not hold.
  void poison() { dst_.poison(); }
  /// Throws Error, which names `way`, when a byte of the destination is not that of the source.
  void verify(const char* way) const;

 private:
  TestBuffer src_;
  TestBuffer dst_;
  std::uint64_t seed_ = 0;
};

CheckedPair::CheckedPair(const CudaDriver& driver, const Node& node, MemoryId src, MemoryId dst,
                         std::uint64_t bytes)
    : src_(driver, node, src, bytes), dst_(driver, node, dst, bytes) {
  std::random_device seeds;
  seed_ = std::uint64_t{seeds()} << 32 | seeds();
  src_.fill(seed_);
}

void CheckedPair::verify(const char* way) const {
  if (const auto offset = dst_.first_difference(seed_))
    throw Error(fmt::format("the copy by {} is wrong at byte {} of {}", way, *offset, dst_.size()));
}

/// Compares the free memory of GPUs now with that at its construction. Other users of the GPUs
/// disturb it. Every member may throw DriverError.
class MemoryTaken {
 public:
  /// `contexts`: one a GPU, each GPU once. `driver` must outlive it.
  MemoryTaken(const CudaDriver& driver, std::vector<CUcontext> contexts);

  /// Bytes, the sum over the GPUs; nothing when a GPU has more free memory than before, because
  /// another process freed some.
  [[nodiscard]] std::optional<std::uint64_t> bytes() const;

 private:
  [[nodiscard]] std::size_t free_on(CUcontext context) const;

  const CudaDriver& driver_;
  std::vector<CUcontext> contexts_;
  std::vector<std::size_t> before_;
};

MemoryTaken::MemoryTaken(const CudaDriver& driver, std::vector<CUcontext> contexts)
    : driver_(driver), contexts_(std::move(contexts)) {
  for (const CUcontext context : contexts_) before_.push_back(free_on(context));
}

std::size_t MemoryTaken::free_on(CUcontext context) const {
  const CurrentContext current(driver_, context);
  std::size_t free = 0;
  std::size_t total = 0;
  POLYPATH_CHECK(driver_, mem_get_info(&free, &total));
  return free;
}

std::optional<std::uint64_t> MemoryTaken::bytes() const {
  std::uint64_t taken = 0;
  for (std::size_t i = 0; i < contexts_.size(); ++i) {
    const std::size_t free = free_on(contexts_[i]);
    if (free > before_[i]) return std::nullopt;
    taken += before_[i] - free;
  }
  return taken;
}

constexpr int kMaxNodes = 256;
/// Launches of each graph between its first and its patched one.
constexpr int kLaterLaunches = 3;

Route staged_route(const Node& node, const GraphPhasesRequest& request) {
  RouteFilter staged;
  staged.direct = false;
  const auto routes = find_routes(node, request.src, request.dst, staged);
  if (routes.empty())
    throw InvalidArgument(fmt::format("{} to {}: there is no memory to stage in",
                                      to_string(request.src), to_string(request.dst)));
  return routes.front();
}

void check(const Node& node, const GraphPhasesRequest& request) {
  for (const MemoryId memory : {request.src, request.dst}) {
    if (!node.contains(memory))
      throw InvalidArgument(fmt::format("{} is not on this node ({} GPUs, {} host memories)",
                                        to_string(memory), node.gpus.size(), node.hosts.size()));
  }
  if (request.nodes < 2 || request.nodes > kMaxNodes || request.nodes % 2 != 0)
    throw InvalidArgument(fmt::format("nodes: {} is not allowed: an even number from 2 to {}",
                                      request.nodes, kMaxNodes));
  if (request.iterations < 1)
    throw InvalidArgument(
        fmt::format("iterations: {} is not allowed: at least 1", request.iterations));
}

constexpr std::array kTimes{
    &GraphPhases::create_us,       &GraphPhases::construct_us,
    &GraphPhases::instantiate_us,  &GraphPhases::first_launch_us,
    &GraphPhases::launch_us,       &GraphPhases::patch_us,
    &GraphPhases::destroy_us,      &GraphPhases::first_latency_us,
    &GraphPhases::latency_us,      &GraphPhases::patched_latency_us,
    &GraphPhases::stream_issue_us, &GraphPhases::stream_latency_us,
};

double median_of(std::span<const GraphPhases> samples, double GraphPhases::* time) {
  std::vector<double> times;
  for (const GraphPhases& sample : samples) times.push_back(sample.*time);
  return median(std::move(times));
}

class PhaseProbe {
 public:
  PhaseProbe(const CudaDriver& driver, const Node& node, Devices& devices,
             const GraphPhasesRequest& request, const Route& route, const ClockFunction& clock)
      : driver_(driver),
        clock_(clock),
        transfer_(node, devices, route, request.bytes, static_cast<std::size_t>(request.nodes) / 2),
        first_(driver, node, request.src, request.dst, request.bytes),
        second_(driver, node, request.src, request.dst, request.bytes),
        staging_(driver, node, route.via, request.bytes),
        streams_(driver, transfer_),
        current_(driver, transfer_.context(0)) {
    for (const MemoryId memory : {request.src, route.via, request.dst})
      if (memory.is_gpu()) contexts_.push_back(devices.context(memory.index));
  }

  GraphPhases run(int iterations) {
    GraphPhases phases;
    phases.via = staging_.memory();
    poison();
    phases.gpu_bytes = try_graph();
    verify();
    std::vector<GraphPhases> samples(static_cast<std::size_t>(iterations));
    for (GraphPhases& sample : samples) {
      if (&sample == &samples.back()) poison();
      time_graph(sample);
    }
    verify();
    try_streams();
    for (GraphPhases& sample : samples) {
      if (&sample == &samples.back()) poison();
      time_streams(sample);
    }
    first_.verify("streams");
    for (const auto time : kTimes) phases.*time = median_of(samples, time);
    return phases;
  }

 private:
  [[nodiscard]] StagedAddresses addresses(const CheckedPair& pair) const {
    return {pair.src(), staging_.address(), pair.dst()};
  }
  void wait() { POLYPATH_CHECK(driver_, stream_synchronize(streams_.stream())); }

  template <typename Call>
  void time(double& us, Call&& call) {
    const double start = clock_();
    call();
    us = clock_() - start;
  }

  void poison() {
    first_.poison();
    second_.poison();
    staging_.poison();
  }
  void verify() const {
    first_.verify("a graph");
    second_.verify("a patched graph");
  }

  std::optional<std::uint64_t> try_graph();
  void time_graph(GraphPhases& sample);
  void try_streams();
  void time_streams(GraphPhases& sample);

  const CudaDriver& driver_;
  const ClockFunction& clock_;
  StagedTransfer transfer_;
  CheckedPair first_;
  CheckedPair second_;  ///< for patched graphs
  TestBuffer staging_;
  StagedStreams streams_;
  CurrentContext current_;
  std::vector<CUcontext> contexts_;  ///< of the GPUs that hold a buffer
};

/// The first graph of this shape: untimed. Returns the memory that it takes.
std::optional<std::uint64_t> PhaseProbe::try_graph() {
  StagedGraph graph(driver_, transfer_);
  graph.construct(addresses(first_));
  const MemoryTaken memory(driver_, contexts_);
  graph.instantiate();
  graph.launch(streams_.stream());
  wait();
  const std::optional<std::uint64_t> taken = memory.bytes();
  graph.patch(addresses(second_));
  graph.launch(streams_.stream());
  wait();
  graph.destroy();
  return taken;
}

void PhaseProbe::time_graph(GraphPhases& sample) {
  std::optional<StagedGraph> graph;
  const auto launch = [&] { graph->launch(streams_.stream()); };
  time(sample.first_latency_us, [&] {
    time(sample.create_us, [&] { graph.emplace(driver_, transfer_); });
    time(sample.construct_us, [&] { graph->construct(addresses(first_)); });
    time(sample.instantiate_us, [&] { graph->instantiate(); });
    time(sample.first_launch_us, launch);
    wait();
  });
  std::array<GraphPhases, kLaterLaunches> later;
  for (GraphPhases& phases : later) {
    time(phases.latency_us, [&] {
      time(phases.launch_us, launch);
      wait();
    });
  }
  sample.launch_us = median_of(later, &GraphPhases::launch_us);
  sample.latency_us = median_of(later, &GraphPhases::latency_us);
  time(sample.patched_latency_us, [&] {
    time(sample.patch_us, [&] { graph->patch(addresses(second_)); });
    launch();
    wait();
  });
  time(sample.destroy_us, [&] { graph->destroy(); });
}

void PhaseProbe::try_streams() {
  poison();
  GraphPhases untimed;
  time_streams(untimed);
  first_.verify("streams");
}

void PhaseProbe::time_streams(GraphPhases& sample) {
  time(sample.stream_latency_us, [&] {
    time(sample.stream_issue_us, [&] { streams_.issue(addresses(first_)); });
    wait();
  });
}

}  // namespace

GraphPhases measure_graph_phases(const CudaDriver& driver, const Node& node, Devices& devices,
                                 const GraphPhasesRequest& request, const ClockFunction& clock) {
  check(node, request);
  PhaseProbe probe(driver, node, devices, request, staged_route(node, request), clock);
  return probe.run(request.iterations);
}

}  // namespace polypath
