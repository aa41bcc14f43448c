#include "core/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <random>

#include "base/units.hpp"
#include "core/json.hpp"
#include "driver/check.hpp"
#include "exec/context_guard.hpp"
#include "tune/buffers.hpp"
#include "tune/resources.hpp"

namespace polypath {
namespace {

using nlohmann::json;

constexpr int kLimitRepetitions = 5;
/// Ahead of each transfer of a group; with the gap between them each takes the GPU over 5 us, the CPU
/// less than 3.
constexpr std::size_t kCopiesAhead = 8;
constexpr double kAheadUs = 3;
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

/// The GPU whose stream carries a transfer: the source, as a program that sends would have it.
int carrier(const Request& request) {
  return request.src.is_gpu() ? request.src.index : request.dst.index;
}

}  // namespace

struct Bench::Buffers {
  std::unique_ptr<TestBuffer> src;
  std::unique_ptr<TestBuffer> dst;
  std::unique_ptr<Stream> stream;
  CUcontext context = nullptr;
  std::uint64_t seed = 0;
  Transfer transfer;
};

void Bench::verify(const char* way, const std::vector<Buffers>& buffers, const Plan& plan,
                   const std::function<void()>& issue, std::vector<CUstream>& streams) {
  for (const Buffers& one : buffers) one.dst->poison();
  const Traffic before = counted(context_);
  issue();
  for (const CUstream stream : streams)
    POLYPATH_CHECK(context_.driver(), stream_synchronize(stream));
  for (std::size_t t = 0; t < buffers.size(); ++t) {
    if (const auto offset = buffers[t].dst->first_difference(buffers[t].seed))
      throw Error(fmt::format("{} copy of transfer {} is wrong at byte {} of {}", way, t, *offset,
                              buffers[t].transfer.bytes));
  }
  const bool split = std::string_view(way) == "polypath";
  if (counted(context_) != (split ? expected(before, plan) : before))
    throw Error(fmt::format("the {} copy did not go the way of the plan", way));
}

double Bench::all_gpus_at_once(bool to_host) {
  const Node& node = context_.node();
  if (lanes_ == nullptr) lanes_ = std::make_unique<Lanes>(context_.driver(), node, kLimitBytes);
  std::vector<int> links;
  for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu) {
    const MemoryId device = MemoryId::gpu(static_cast<int>(gpu));
    const MemoryId host = MemoryId::host(node.gpus[gpu].numa);
    const auto link = to_host ? node.find_link(device, host) : node.find_link(host, device);
    if (link) links.push_back(*link);
  }
  return measure_together_gbps(*lanes_, links, kLimitRepetitions);
}

json Bench::run(const std::vector<Request>& requests, const PairOptions& options) {
  const CudaDriver& driver = context_.driver();
  const Plan plan = context_.plan(requests);
  context_.prepare(requests);

  std::random_device seeds;
  std::vector<Buffers> buffers;
  std::vector<CUstream> streams;
  std::vector<Transfer> transfers;
  for (const Request& request : requests) {
    Buffers one;
    one.context = context_.devices().context(carrier(request));
    one.src = std::make_unique<TestBuffer>(driver, context_.node(), request.src, request.bytes);
    one.dst = std::make_unique<TestBuffer>(driver, context_.node(), request.dst, request.bytes);
    one.stream = std::make_unique<Stream>(driver, one.context);
    one.seed = std::uint64_t{seeds()} << 32 | seeds();
    one.src->fill(one.seed);
    one.transfer = {one.dst->address(), one.src->address(), request.bytes, one.stream->get()};
    streams.push_back(one.stream->get());
    transfers.push_back(one.transfer);
    buffers.push_back(std::move(one));
  }

  const auto native = [&] {
    ContextGuard guard(driver);
    for (const Buffers& one : buffers) {
      guard.use(one.context);
      POLYPATH_CHECK(driver, memcpy_async(one.transfer.dst, one.transfer.src, one.transfer.bytes,
                                          one.transfer.stream));
    }
  };
  const auto polypath = [&] {
    ContextGuard guard(driver);
    guard.use(buffers.front().context);
    context_.group_copy_async(transfers);
  };

  verify("native", buffers, plan, native, streams);
  verify("polypath", buffers, plan, polypath, streams);
  // Small copies ahead, which take the GPU longer than the CPU, so that the GPU's time and the CPU's are
  // measured apart. In virtual time there is nothing to keep apart: it does not jitter.
  PairOptions behind_work = options;
  const auto link = context_.node().find_link(requests.front().src, requests.front().dst);
  std::vector<std::unique_ptr<TestBuffer>> ahead;
  if (!context_.source().simulated && link) {
    const double gbps = context_.node().links[static_cast<std::size_t>(*link)].gbps;
    const auto bytes = static_cast<std::uint64_t>(kAheadUs * gbps * kBytesPerGbpsUs);
    for (const MemoryId memory : {requests.front().src, requests.front().dst}) {
      ahead.push_back(std::make_unique<TestBuffer>(driver, context_.node(), memory, bytes));
      ahead.back()->fill(buffers.front().seed);
    }
    behind_work.ahead = [&, bytes] {
      for (std::size_t i = 0; i < kCopiesAhead * transfers.size(); ++i)
        POLYPATH_CHECK(
            driver, memcpy_async(ahead[1]->address(), ahead[0]->address(), bytes, streams.front()));
    };
  }
  const PairSamples samples = measure_pairs(driver, streams, native, polypath, behind_work);
  verify("polypath", buffers, plan, polypath, streams);

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
          {"native_us", native_us},
          {"polypath_us", polypath_us},
          {"native_gbps", rate_gbps(plan.bytes(), native_us)},
          {"polypath_gbps", rate_gbps(plan.bytes(), polypath_us)},
          {"speedup", polypath_us > 0 ? native_us / polypath_us : 0.0},
          {"limit_gbps", limit_gbps},
          {"limit_from", limit_from},
          {"predicted_us", plan.predicted_us},
          {"verified", true},
          {"executor", context_.executor_name()},
          {"issue_us", samples.polypath.median_issue_us()},
          {"native_issue_us", samples.native.median_issue_us()},
          {"copies", copies},
          {"routes", std::move(routes)},
          {"native", plan.native()},
          {"reason", plan.reason}};
}

}  // namespace polypath
