// Memory that kernels allocate and free.
#include <string>

#include "bench_images.hpp"
#include "groups.hpp"
#include "polypath/device/pool_view.hpp"
#include "pool_bench.h"

namespace messaging_bench {
namespace {

constexpr const char* kPool = "pool";

PoolTally run_pool(Bench& bench, const char* name, const PoolRun& run, unsigned threads,
                   double* us) {
  Gpu& gpu = bench.gpu(0);
  CUfunc_st* const kernel = gpu.kernel(pool_bench_image(), name);
  const unsigned blocks = bench.sized(gpu.processors(), 2U);
  *us = gpu.time_us([&] { gpu.launch(kernel, blocks, bench.sized(threads, 64U), run); });
  const PoolTally tally = gpu.read<PoolTally>(run.tally, 1)[0];
  gpu.set(run.tally, 0, sizeof(PoolTally));
  return tally;
}

/// All blocks came back: no gate counts any, and no bit is set.
void expect_empty(Bench& bench, const polypath::device::pool_view& view, const std::string& line) {
  using polypath::device::pool_view;
  Gpu& gpu = bench.gpu(0);
  for (const std::uint32_t gate : gpu.read<std::uint32_t>(view.gates, view.slabs))
    expect((gate & pool_view::kGateCount) == 0, line + ": a slab that is not empty");
  const std::size_t words = std::size_t{view.slabs} << (view.slab_log2 - pool_view::kBitsLog2);
  for (const std::uint32_t bits : gpu.read<std::uint32_t>(view.bits, words))
    expect(bits == 0, line + ": a block that did not come back");
}

void pool_line(Bench& bench, const std::string& line, const char* name, unsigned threads,
               std::uint32_t rounds) {
  if (!bench.wants(line)) return;
  Gpu& gpu = bench.gpu(0);
  const auto layout =
      polypath::device::layout_of_pool(bench.sized(16384U, 64U), bench.sized(17U, 14U));
  PoolRun run{};
  run.view = layout.view_at(static_cast<unsigned char*>(gpu.alloc(layout.bytes)));
  run.tally = static_cast<PoolTally*>(gpu.alloc(sizeof(PoolTally)));
  double us = 0;
  // Every block filled, and looked into before it is freed.
  run.seed = 1;
  run.rounds = bench.sized(100U, 6U);
  const PoolTally checked = run_pool(bench, "polypath_bench_pool_checked", run, threads, &us);
  expect(checked.wrong == 0, line + ": blocks with wrong bytes");
  expect(checked.failed == 0, line + ": an allocation failed");
  expect_empty(bench, run.view, line);
  run.rounds = rounds;
  double done = 0;
  const double median = bench.median_us(line, [&] {
    ++run.seed;
    double run_us = 0;
    const PoolTally tally = run_pool(bench, name, run, threads, &run_us);
    expect(tally.wrong == 0 && tally.failed == 0, line + ": a call failed");
    done = static_cast<double>(tally.done);
    return run_us;
  });
  expect_empty(bench, run.view, line);
  gpu.free_all();
  bench.figure(kPool, line, done / median * 1e-3, "G a second", {}, {"fetch_adds"});
}

void malloc_line(Bench& bench, const std::string& line) {
  if (!bench.wants(line)) return;
  if (bench.quick()) return bench.skipped(kPool, line, "for GPUs alone");
  Gpu& gpu = bench.gpu(0);
  PoolRun run{};
  run.rounds = 100;
  run.seed = 1;
  run.tally = static_cast<PoolTally*>(gpu.alloc(sizeof(PoolTally)));
  double done = 0;
  const double us = bench.median_us(line, [&] {
    double run_us = 0;
    done = static_cast<double>(run_pool(bench, "polypath_bench_malloc", run, 32, &run_us).done);
    return run_us;
  });
  gpu.free_all();
  bench.figure(kPool, line, done / us * 1e-3, "G a second");
}

}  // namespace

void pool_lines(Bench& bench) {
  const std::uint32_t rounds = bench.sized(1000U, 6U);
  pool_line(bench, "allocate and free, 64 B to 4 KiB, all SMs", "polypath_bench_pool_warps", 768,
            rounds);
  pool_line(bench, "... each thread by itself", "polypath_bench_pool_threads", 768, rounds / 2);
  malloc_line(bench, "CUDA's malloc and free in kernels, 32 threads an SM");
}

}  // namespace messaging_bench
