#include "plan/pageable_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace polypath {
namespace {

/// A copy that gains less than this part is left to the driver.
constexpr double kMinPageableGain = 0.25;
/// So little memory may be in the CPU's caches. The driver's copy to a GPU is faster then by this
/// factor than was measured: 10.9 to 13.8 against 7.5 GB/s (4 x H200).
constexpr std::uint64_t kCachedBytes = 32 * kMiB;
constexpr double kCachedSpeedup = 1.6;
constexpr std::uint64_t kMinPageableChunk = 64 * kKiB;
/// The part of a link's rate that chunks reach whose times of arrival vary: 48 of 55 GB/s on one
/// link of an H200, docs/pageable.md.
constexpr double kLinkShare = 0.85;
/// A further route that gains less is left to others.
constexpr double kMinRouteGain = 1.03;

constexpr double flow_us(double bytes, double gbps) { return bytes / (gbps * 1e3); }

/// `threads` in proportion to the rates, at least one for each route.
std::vector<int> assign_threads(const std::vector<RouteShare>& routes, int threads) {
  std::vector<int> route_of_thread;
  std::vector<int> count(routes.size());
  for (int t = 0; t < threads; ++t) {
    std::size_t next = 0;
    for (std::size_t r = 1; r < routes.size(); ++r)
      if ((count[r] + 1) / routes[r].gbps < (count[next] + 1) / routes[next].gbps) next = r;
    ++count[next];
    route_of_thread.push_back(static_cast<int>(next));
  }
  return route_of_thread;
}

struct PageableCandidate {
  std::size_t routes = 0;
  int threads = 0;
  std::uint64_t chunk_bytes = 0;
  double time_us = 0;
};

/// Until this number of threads is awake. The caller is one of them, and wakes the others in one
/// call, some 3 us each: the last of 16 begins after 65 to 200 us (4 x H200). Twice that counts
/// here, since copies of 2 to 8 MiB take 60 to 100 us more than their chunks (2 x H200).
double wake_us(const Costs& costs, int threads) {
  constexpr double kWakeUs = 6;
  return costs.thread_wake_us + kWakeUs * (threads - 1);
}

/// A thread's calls for one leg of a chunk. The driver serves the threads' calls one after another:
/// 8, 16, 32, 48 threads take 14, 21, 30 and 43 us for the 1.75 legs of a chunk (4 x H200).
double issue_us(const Costs& costs, int threads) {
  constexpr double kThreadsAsMeasured = 16;
  return costs.thread_issue_us * (0.5 + 0.5 * threads / kThreadsAsMeasured);
}

/// Many take about the least time. The one with the largest chunks, and then with the fewest
/// threads, costs the CPUs least. `candidates`: by chunk, and then by threads from many to few.
PageableCandidate cheapest_of_fast(const std::vector<PageableCandidate>& candidates) {
  constexpr double kAboutAsFast = 1.02;
  const double least = std::ranges::min(candidates, {}, &PageableCandidate::time_us).time_us;
  return *std::ranges::find_if(candidates.rbegin(), candidates.rend(), [&](const auto& candidate) {
    return candidate.time_us <= kAboutAsFast * least;
  });
}

/// From the call to the last byte, over the first `count` routes.
double time_us(const Costs& costs, const std::vector<RouteShare>& routes, std::size_t count,
               double host_gbps, double links_gbps, double bytes,
               const PageableCandidate& candidate) {
  const auto chunk = static_cast<double>(candidate.chunk_bytes);
  const double rounds = std::ceil(std::ceil(bytes / chunk) / candidate.threads);
  const double staged_part = static_cast<double>(count - 1) / static_cast<double>(count);
  const double cycle_us = flow_us(chunk, host_gbps / candidate.threads) +
                          (1 + staged_part) * issue_us(costs, candidate.threads);
  // The last chunk goes on when all links are free.
  const double last_us = flow_us(chunk, routes.front().gbps) +
                         (count > 1 ? costs.copy_start_us + flow_us(chunk, routes[1].gbps) : 0);
  return wake_us(costs, candidate.threads) + costs.event_us + 2 * costs.copy_start_us + last_us +
         std::max(rounds * cycle_us, flow_us(bytes, links_gbps));
}

}  // namespace

double fastest_native_us(const Request& request, double native_us) noexcept {
  const bool is_cached = request.src.is_host() && request.bytes <= kCachedBytes;
  return is_cached ? native_us / kCachedSpeedup : native_us;
}

double host_copy_gbps(const Costs& costs, ThreadWork what, int threads) noexcept {
  const double thread = what == ThreadWork::read     ? costs.thread_read_gbps
                        : what == ThreadWork::to_gpu ? costs.thread_to_gpu_gbps
                                                     : costs.thread_from_gpu_gbps;
  const double host =
      what == ThreadWork::from_gpu ? costs.host_from_gpu_gbps : costs.host_to_gpu_gbps;
  return threads <= 0 ? 0 : 1 / (1 / (threads * thread) + 1 / host);
}

PageablePlan make_pageable_plan(const Node& node, const Request& request,
                                const TransferPlan& pinned, int threads, bool is_file) {
  const bool is_to_gpu = request.src.is_host();
  const ThreadWork what = is_file     ? ThreadWork::read
                          : is_to_gpu ? ThreadWork::to_gpu
                                      : ThreadWork::from_gpu;
  const Costs& costs = node.costs;
  PageablePlan result;
  result.plan.transfers.push_back({.request = request, .routes = {}, .excluded = {}});
  TransferPlan& transfer = result.plan.transfers.front();
  const auto direct = node.find_link(request.src, request.dst);
  double native_gbps = is_to_gpu ? costs.pageable_to_gpu_gbps : costs.pageable_from_gpu_gbps;
  // The native read of a file reads by one thread, and then copies.
  if (is_file) native_gbps = 1 / (1 / native_gbps + 1 / costs.thread_read_gbps);
  if (direct)
    native_gbps = std::min(native_gbps, node.links[static_cast<std::size_t>(*direct)].gbps);
  const auto bytes = static_cast<double>(request.bytes);
  result.plan.native_us = costs.copy_start_us + flow_us(bytes, native_gbps);
  result.plan.predicted_us = result.plan.native_us;
  result.plan.limit_gbps = native_gbps;

  std::vector<RouteShare> routes;
  for (const RouteShare& share : pinned.routes) {
    if (share.route.kind == RouteKind::via_host) continue;
    routes.push_back(share);
    if (routes.back().gbps <= 0)
      routes.back().gbps =
          direct ? node.links[static_cast<std::size_t>(*direct)].gbps : native_gbps;
  }
  std::ranges::stable_partition(routes, [](const auto& share) { return !share.route.staged(); });
  // A CPU that is joined to its GPUs reads their memory, and lets them read its own.
  const bool is_coherent =
      direct && node.links[static_cast<std::size_t>(*direct)].type == LinkType::c2c;
  const auto fallback = [&](std::string why) {
    RouteShare native;
    if (direct) native.route.legs = {*direct};
    native.bytes = native.chunk_bytes = request.bytes;
    native.gbps = native_gbps;
    transfer.routes = {native};
    result.plan.reason = std::move(why);
    return result;
  };
  if (is_coherent) return fallback("the GPU reaches pageable memory by itself");
  if (threads < 2) return fallback("fewer than two CPUs may copy");
  if (request.bytes < kMinPageable || routes.empty())
    return fallback("too small for several threads");

  const std::uint64_t slot_bytes = pageable_slot_bytes(threads);
  PageableCandidate best;
  double links_gbps = 0;
  for (std::size_t count = 1; count <= routes.size(); ++count) {
    links_gbps += kLinkShare * routes[count - 1].gbps;
    std::vector<PageableCandidate> candidates;
    for (std::uint64_t chunk = kMinPageableChunk; chunk <= slot_bytes; chunk *= 2) {
      const auto chunks = (request.bytes + chunk - 1) / chunk;
      // Threads are woken one after another: a small copy ends sooner by fewer of them.
      for (int used =
               static_cast<int>(std::min<std::uint64_t>(static_cast<unsigned>(threads), chunks));
           used >= static_cast<int>(count); used /= 2) {
        PageableCandidate next{.routes = count, .threads = used, .chunk_bytes = chunk};
        next.time_us = time_us(costs, routes, count, host_copy_gbps(costs, what, used), links_gbps,
                               bytes, next);
        candidates.push_back(next);
      }
    }
    if (candidates.empty()) break;
    const PageableCandidate widest = cheapest_of_fast(candidates);
    if (best.routes == 0 || best.time_us > kMinRouteGain * widest.time_us) best = widest;
  }
  if (best.routes == 0) return fallback("too small for several threads");
  const double native_us =
      is_file ? result.plan.native_us : fastest_native_us(request, result.plan.native_us);
  if (best.time_us > (1 - kMinPageableGain) * native_us)
    return fallback(fmt::format("{} threads would gain nothing", best.threads));

  routes.resize(best.routes);
  result.threads = best.threads;
  result.chunk_bytes = best.chunk_bytes;
  result.host_gbps = host_copy_gbps(costs, what, best.threads);
  result.route_of_thread = assign_threads(routes, best.threads);
  double total = 0;
  for (const RouteShare& share : routes) total += share.gbps;
  const double used = std::min(1.0, result.host_gbps / total);
  std::uint64_t offset = 0;
  for (std::size_t r = 0; r < routes.size(); ++r) {
    RouteShare& share = routes[r];
    const std::uint64_t left = request.bytes - offset;
    const auto part = static_cast<std::uint64_t>(bytes * share.gbps / total);
    share.offset = offset;
    share.bytes = r + 1 == routes.size() ? left : std::min(left, part / kGranule * kGranule);
    share.chunk_bytes = best.chunk_bytes;
    share.chunks = static_cast<int>((share.bytes + best.chunk_bytes - 1) / best.chunk_bytes);
    share.gbps *= used;
    offset += share.bytes;
  }
  result.plan.limit_gbps = std::min(result.host_gbps, total);
  result.plan.predicted_us = best.time_us;
  result.plan.reason = fmt::format(
      "{} CPU threads {} at {:.0f} GB/s, in chunks of {} KiB; the driver's own copy: {:.1f} GB/s",
      result.threads,
      is_file     ? "read a file"
      : is_to_gpu ? "copy from pageable memory"
                  : "copy to pageable memory",
      result.host_gbps, result.chunk_bytes / kKiB, native_gbps);
  transfer.routes = std::move(routes);
  transfer.copy_threads = result.threads;
  transfer.host_gbps = result.host_gbps;
  return result;
}

std::uint64_t smallest_pageable(const Node& node, Request request, const TransferPlan& pinned,
                                int threads) {
  for (request.bytes = kMinPageable; request.bytes <= kGiB; request.bytes *= 2)
    if (!make_pageable_plan(node, request, pinned, threads).native()) return request.bytes;
  return 0;
}

}  // namespace polypath
