#include "transfers.hpp"

#include "base/units.hpp"
#include "polypath_sim.h"
#include "staged_route.hpp"

namespace polypath::sim::test {
namespace {

constexpr int kSlots = 4;

std::size_t part(std::size_t bytes, int percent) {
  return bytes / 100 * static_cast<std::size_t>(percent) / 512 * 512;
}

double sum_gbps(Rig& rig, std::size_t bytes, const std::function<void()>& work) {
  return rate_gbps(bytes, rig.measure_us(work));
}

void copy(Rig& rig, CUdeviceptr dst, CUdeviceptr src, std::size_t bytes, int gpu, int number) {
  CHECK_CUDA(cuMemcpyAsync(dst, src, bytes, rig.forked(gpu, number)));
}

/// GPU `from` to GPU `to` by host memory: the tail of the buffers, `bytes` of `total`.
StagedRoute host_route(Rig& rig, int from, int to, std::size_t total, std::size_t bytes,
                       std::size_t chunk, int slots) {
  const CUdeviceptr staging = rig.host_staging(from, chunk * static_cast<std::size_t>(slots));
  return {rig,
          {rig.gpu(from) + total - bytes, staging, rig.gpu(to) + total - bytes, from, to, 1},
          bytes,
          chunk,
          slots};
}

}  // namespace

double direct(Rig& rig, std::size_t bytes) {
  return sum_gbps(rig, bytes, [&] { copy(rig, rig.gpu(1), rig.gpu(0), bytes, 0, 0); });
}

double split(Rig& rig, std::size_t bytes, int streams) {
  const std::size_t size = bytes / static_cast<std::size_t>(streams);
  return sum_gbps(rig, bytes, [&] {
    for (int i = 0; i < streams; ++i) {
      const std::size_t offset = size * static_cast<std::size_t>(i);
      copy(rig, rig.gpu(1) + offset, rig.gpu(0) + offset, size, 0, i);
    }
  });
}

double both_directions(Rig& rig, std::size_t bytes) {
  return sum_gbps(rig, 2 * bytes, [&] {
    copy(rig, rig.gpu(1), rig.gpu(0), bytes, 0, 1);
    copy(rig, rig.gpu(0), rig.gpu(1), bytes, 1, 1);
  });
}

double ring(Rig& rig, std::size_t bytes) {
  const int n = rig.gpus();
  return sum_gbps(rig, bytes * static_cast<std::size_t>(n), [&] {
    for (int i = 0; i < n; ++i) copy(rig, rig.gpu((i + 1) % n), rig.gpu(i), bytes, i, 1);
  });
}

double fan_out(Rig& rig, std::size_t bytes) {
  return sum_gbps(rig, bytes * static_cast<std::size_t>(rig.gpus() - 1), [&] {
    for (int i = 1; i < rig.gpus(); ++i) copy(rig, rig.gpu(i), rig.gpu(0), bytes, 0, i);
  });
}

double fan_in(Rig& rig, std::size_t bytes) {
  return sum_gbps(rig, bytes * static_cast<std::size_t>(rig.gpus() - 1), [&] {
    for (int i = 1; i < rig.gpus(); ++i) copy(rig, rig.gpu(0), rig.gpu(i), bytes, i, 1);
  });
}

double host_copies(Rig& rig, Direction direction, int gpus, std::size_t bytes) {
  const bool to_host = direction != Direction::from_host;
  const bool from_host = direction != Direction::to_host;
  const auto copies = static_cast<std::size_t>(gpus) * (to_host && from_host ? 2 : 1);
  return sum_gbps(rig, bytes * copies, [&] {
    for (int i = 0; i < gpus; ++i) {
      if (to_host) copy(rig, rig.host(), rig.gpu(i), bytes, i, 1);
      if (from_host) copy(rig, rig.gpu(i), rig.host(), bytes, i, 2);
    }
  });
}

double by_host(Rig& rig, std::size_t bytes, std::size_t chunk) {
  return sum_gbps(rig, bytes, [&] {
    std::vector routes{host_route(rig, 0, 1, bytes, bytes, chunk, kSlots)};
    issue_all(routes);
  });
}

double direct_and_host(Rig& rig, std::size_t bytes, int percent, std::size_t chunk) {
  const std::size_t share = part(bytes, percent);
  return sum_gbps(rig, bytes, [&] {
    copy(rig, rig.gpu(1), rig.gpu(0), bytes - share, 0, 0);
    std::vector routes{host_route(rig, 0, 1, bytes, share, chunk, kSlots)};
    issue_all(routes);
  });
}

double direct_and_gpu(Rig& rig, std::size_t bytes, int percent, std::size_t chunk) {
  const std::size_t share = part(bytes, percent);
  return sum_gbps(rig, bytes, [&] {
    copy(rig, rig.gpu(1), rig.gpu(0), bytes - share, 0, 0);
    const StagedRoute::Ends ends{rig.gpu(0) + bytes - share,
                                 rig.staging(2, 0, chunk * kSlots),
                                 rig.gpu(1) + bytes - share,
                                 0,
                                 2,
                                 1};
    std::vector<StagedRoute> routes{{rig, ends, share, chunk, kSlots}};
    issue_all(routes);
  });
}

double both_directions_and_host(Rig& rig, std::size_t bytes, int percent, std::size_t chunk,
                                int slots) {
  const std::size_t share = part(bytes, percent);
  return sum_gbps(rig, 2 * bytes, [&] {
    copy(rig, rig.gpu(1), rig.gpu(0), bytes - share, 0, 3);
    copy(rig, rig.gpu(0), rig.gpu(1), bytes - share, 1, 3);
    std::vector routes{host_route(rig, 0, 1, bytes, share, chunk, slots),
                       host_route(rig, 1, 0, bytes, share, chunk, slots)};
    issue_all(routes);
  });
}

namespace {

/// Chunks dealt out in turn: how many bytes the `index`th of `count` routes gets.
std::size_t dealt(std::size_t bytes, std::size_t chunk, int count, int index) {
  const std::size_t chunks = bytes / chunk;
  const auto n = static_cast<std::size_t>(count);
  return (chunks / n + (static_cast<std::size_t>(index) < chunks % n ? 1 : 0)) * chunk;
}

}  // namespace

double into_gpu_over(Rig& rig, int gpus, std::size_t bytes, std::size_t chunk) {
  return sum_gbps(rig, bytes, [&] {
    std::size_t offset = dealt(bytes, chunk, gpus, 0);
    copy(rig, rig.gpu(0), rig.host(), offset, 0, 0);
    std::vector<StagedRoute> routes;
    for (int i = 1; i < gpus; ++i) {
      const std::size_t size = dealt(bytes, chunk, gpus, i);
      const StagedRoute::Ends ends{
          rig.host() + offset, rig.staging(i, 1, chunk * kSlots), rig.gpu(0) + offset, i, i, 1};
      routes.emplace_back(rig, ends, size, chunk, kSlots);
      offset += size;
    }
    issue_all(routes);
  });
}

double out_of_gpu_over(Rig& rig, int gpus, std::size_t bytes, std::size_t chunk) {
  return sum_gbps(rig, bytes, [&] {
    std::size_t offset = dealt(bytes, chunk, gpus, 0);
    copy(rig, rig.host(), rig.gpu(0), offset, 0, 0);
    std::vector<StagedRoute> routes;
    for (int i = 1; i < gpus; ++i) {
      const std::size_t size = dealt(bytes, chunk, gpus, i);
      const StagedRoute::Ends ends{
          rig.gpu(0) + offset, rig.staging(i, 1, chunk * kSlots), rig.host() + offset, 0, i, i};
      routes.emplace_back(rig, ends, size, chunk, kSlots);
      offset += size;
    }
    issue_all(routes);
  });
}

double issue_us(Rig& rig) {
  constexpr std::size_t kSize = 1 * kMiB;
  CUstream stream = rig.stream(0, 0);
  const double begin = polypath_sim_clock_us();
  CHECK_CUDA(cuMemcpyAsync(rig.gpu(1), rig.gpu(0), kSize, stream));
  const double end = polypath_sim_clock_us();
  CHECK_CUDA(cuStreamSynchronize(stream));
  return end - begin;
}

}  // namespace polypath::sim::test
