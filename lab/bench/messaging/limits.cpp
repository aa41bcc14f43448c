#include "limits.hpp"

#include "bench.hpp"
#include "bench_images.hpp"
#include "limits_bench.h"

namespace messaging_bench {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A launch on GPU 0 that works on memory of `where`; its time, us.
double run_us(Bench& bench, const char* name, int where, std::size_t bytes, std::uint32_t times) {
  Gpu& gpu = bench.gpu(0);
  CUfunc_st* const kernel = gpu.kernel(limits_bench_image(), name);
  auto* const memory = static_cast<unsigned char*>(bench.gpu(where).alloc(bytes));
  auto* const result = static_cast<std::uint32_t*>(gpu.alloc(sizeof(std::uint32_t)));
  const unsigned blocks = bench.sized(2 * gpu.processors(), 2U);
  const unsigned threads = bench.sized(512U, 64U);
  const double us = bench.median_us(name, [&] {
    return gpu.time_us(
        [&] { gpu.launch(kernel, blocks, threads, LimitRun{memory, bytes, times, result}); });
  });
  return us;
}

}  // namespace

double measure_limit(Bench& bench, const std::string& name) {
  const bool is_remote = name.starts_with("remote_");
  if (is_remote && bench.gpus() < 2) return 0;
  const int where = is_remote ? 1 : 0;
  if (name == "fetch_adds" || name == "remote_fetch_adds") {
    const std::uint32_t times = bench.sized(500U, 2U);
    const double us = run_us(bench, "polypath_bench_fetch_adds", where, 16, times);
    const double warps =
        bench.sized(2 * bench.gpu(0).processors(), 2U) * bench.sized(512.0, 64.0) / 32;
    return warps * times / us * 1e-3;
  }
  const auto bandwidth = [&](const char* kernel, std::size_t bytes, std::uint32_t times) {
    return static_cast<double>(bytes) * times / run_us(bench, kernel, where, bytes, times) * 1e-3;
  };
  if (name == "l2_read")
    return bandwidth("polypath_bench_reads", bench.sized(16 * kMiB, std::size_t{8192}),
                     bench.sized(50U, 2U));
  if (name == "hbm_read")
    return bandwidth("polypath_bench_reads", bench.sized(1024 * kMiB, std::size_t{8192}), 1);
  if (name == "remote_stores")
    return bandwidth("polypath_bench_stores", bench.sized(256 * kMiB, std::size_t{8192}), 2);
  throw std::runtime_error("there is no limit " + name);
}

}  // namespace messaging_bench
