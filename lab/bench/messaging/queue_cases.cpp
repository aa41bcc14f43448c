// Queues and pairs of one GPU.
#include <string>

#include "bench_images.hpp"
#include "groups.hpp"
#include "history.hpp"
#include "queue_bench.h"
#include "queue_memory.hpp"

namespace messaging_bench {
namespace {

constexpr const char* kQueue = "queue";
constexpr const char* kQueueRate = "G items/s";

struct Shape {
  unsigned producers;
  unsigned consumers;
  unsigned threads;
  unsigned capacity_log2;
  unsigned segment_log2;
  std::uint32_t calls;  ///< of a producing team
};

Tally read_tally(Gpu& gpu, Tally* tally) { return gpu.read<Tally>(tally, 1)[0]; }

void expect_all(const Tally& tally, std::uint64_t items, std::uint64_t runs,
                const std::string& line) {
  expect(tally.wrong == 0, line + ": " + std::to_string(tally.wrong) + " wrong items");
  expect(tally.items == items * runs, line + ": items lost or doubled");
  expect(tally.sum_of_ids == items * (items - 1) / 2 * runs, line + ": not these items");
}

/// The rate of one queue; every item is checked.
void queue_line(Bench& bench, const std::string& line, const char* name, unsigned words,
                unsigned team, unsigned items, const Shape& shape, const Known& known) {
  if (!bench.wants(line)) return;
  Gpu& gpu = bench.gpu(0);
  CUfunc_st* const kernel = gpu.kernel(queue_bench_image(), name);
  auto* const tally = static_cast<Tally*>(gpu.alloc(sizeof(Tally)));
  const unsigned cell = words <= 3 ? 16 : 128;
  QueueRun run{};
  run.view = make_queue(gpu, cell, shape.capacity_log2, shape.segment_log2);
  run.producers = shape.producers;
  run.calls = shape.calls;
  run.pop_calls = shape.calls * shape.producers / shape.consumers;
  run.in_order = shape.producers == 1 && shape.threads == team ? 1 : 0;
  run.tally = tally;
  const std::uint64_t all = std::uint64_t{shape.producers} * shape.threads * items * shape.calls;
  std::uint64_t runs = 0;
  const double us = bench.median_us(
      line,
      [&] {
        ++runs;
        return gpu.time_us(
            [&] { gpu.launch(kernel, shape.producers + shape.consumers, shape.threads, run); });
      },
      [&] { return turns_taken(gpu, run.view.tail, gpu, run.view.head); });
  expect_all(read_tally(gpu, tally), all, runs, line);
  gpu.free_all();
  bench.checked(all * runs);
  bench.figure(kQueue, line, static_cast<double>(all) / us * 1e-3, kQueueRate, known,
               {"fetch_adds", "l2_read"});
}

void pair_line(Bench& bench, const std::string& line, const char* name, unsigned words,
               unsigned items, bool by_warp, const Known& known) {
  if (!bench.wants(line)) return;
  Gpu& gpu = bench.gpu(0);
  CUfunc_st* const kernel = gpu.kernel(queue_bench_image(), name);
  const unsigned pairs = bench.sized(gpu.processors() / 2, 2U);
  const unsigned threads = bench.sized(512U, 64U);
  const std::size_t rings = by_warp ? pairs * threads / 32 : pairs;
  const unsigned segment_log2 = by_warp ? 8 : 12;
  const unsigned cell = words <= 3 ? 16 : 128;
  PairRun run{};
  run.view = make_pairs(gpu, rings, cell, segment_log2 + 2, segment_log2);
  run.cell_bytes = std::uint64_t{cell} << (segment_log2 + 2);
  run.by_warp = by_warp ? 1 : 0;
  run.calls = bench.sized(4000U, 40U) / items;
  run.tally = static_cast<Tally*>(gpu.alloc(sizeof(Tally)));
  const std::uint64_t all = std::uint64_t{pairs} * threads * items * run.calls;
  std::uint64_t runs = 0;
  const double us = bench.median_us(line, [&] {
    ++runs;
    return gpu.time_us([&] { gpu.launch(kernel, 2 * pairs, threads, run); });
  });
  expect_all(read_tally(gpu, run.tally), all, runs, line);
  gpu.free_all();
  bench.checked(all * runs);
  bench.figure(kQueue, line, static_cast<double>(all) / us * 1e-3, kQueueRate, known, {"l2_read"});
}

void trip_line(Bench& bench, const std::string& line, const char* name) {
  if (!bench.wants(line)) return;
  Gpu& gpu = bench.gpu(0);
  CUfunc_st* const kernel = gpu.kernel(queue_bench_image(), name);
  RoundTrips trips{};
  for (auto& view : trips.queues) view = make_queue(gpu, 16, 10, 5);
  for (auto& view : trips.pairs) view = make_pairs(gpu, 1, 16, 10, 5);
  trips.rounds = bench.sized(5000U, 50U);
  trips.tally = static_cast<Tally*>(gpu.alloc(sizeof(Tally)));
  std::uint64_t runs = 0;
  const double us = bench.median_us(line, [&] {
    ++runs;
    return gpu.time_us([&] { gpu.launch(kernel, 2, 32, trips); });
  });
  expect_all(read_tally(gpu, trips.tally), trips.rounds, 2 * runs, line);
  gpu.free_all();
  bench.figure(kQueue, line, us / trips.rounds / 2, "us");
}

/// Single calls at random times, by threads of many blocks, and whether what they saw is a queue.
void history_line(Bench& bench, const std::string& line, unsigned capacity_log2) {
  if (!bench.wants(line)) return;
  constexpr std::uint64_t kResolutionNs = 1024;  // of the clock; on most GPUs it is finer
  Gpu& gpu = bench.gpu(0);
  CUfunc_st* const kernel = gpu.kernel(queue_bench_image(), "polypath_bench_history");
  const unsigned half = bench.sized(gpu.processors() / 2, 2U);
  constexpr unsigned kThreads = 64;
  HistoryRun run{};
  run.queue.view = make_queue(gpu, 16, capacity_log2, capacity_log2 - 3);
  run.queue.producers = half;
  run.queue.calls = run.queue.pop_calls = bench.sized(200U, 5U);
  const std::size_t count = std::size_t{half} * kThreads * run.queue.calls;
  run.operations = static_cast<Operation*>(gpu.alloc(2 * count * sizeof(Operation)));
  std::uint64_t checked = 0;
  (void)bench.median_us(line, [&] {
    gpu.set(run.operations, 0xFF, 2 * count * sizeof(Operation));
    const double us = gpu.time_us([&] { gpu.launch(kernel, 2 * half, kThreads, run); });
    const auto operations = gpu.read<Operation>(run.operations, 2 * count);
    const auto middle = operations.begin() + static_cast<std::ptrdiff_t>(count);
    const std::vector<Operation> pushes(operations.begin(), middle);
    std::vector<Operation> pops(count, Operation{~std::uint64_t{0}, 0, 0});
    for (auto pop = middle; pop != operations.end(); ++pop) {
      expect(pop->id < count && pops[pop->id].id != pop->id, line + ": an item lost or doubled");
      pops[pop->id] = *pop;
    }
    const std::string why = why_not_linearizable(pushes, pops, kResolutionNs);
    expect(why.empty(), line + ": " + why);
    checked += 2 * count;
    return us;
  });
  gpu.free_all();
  bench.figure(kQueue, line, static_cast<double>(checked) * 1e-6, "M calls");
}

}  // namespace

void queue_lines(Bench& bench) {
  const unsigned half = bench.sized(bench.gpu(0).processors() / 2, 2U);
  const unsigned threads = bench.sized(512U, 64U);
  const auto many = [&](unsigned capacity_log2, unsigned segment_log2, std::uint32_t calls) {
    return bench.quick() ? Shape{half, half, threads, 10, 7, 5}
                         : Shape{half, half, threads, capacity_log2, segment_log2, calls};
  };
  const auto single = [&](unsigned size, std::uint32_t calls) {
    return bench.quick() ? Shape{1, 1, size, 10, 7, 5} : Shape{1, 1, size, 16, 10, calls};
  };
  const char* const warps = "polypath_bench_queue_warp_3_1";
  queue_line(bench, "many to many, 16 B, 32 a turn", warps, 3, 32, 1, many(18, 12, 3000), {0.03});
  queue_line(bench, "many to many, 16 B, 128 a turn", "polypath_bench_queue_warp_3_4", 3, 32, 4,
             many(20, 14, 3000), {0.03});
  queue_line(bench, "many to many, 16 B, one a turn", "polypath_bench_queue_thread_3_1", 3, 1, 1,
             many(18, 12, 500), {0.03});
  for (const unsigned log2 : {12U, 14U, 16U, 17U, 20U})
    queue_line(bench, "many to many, 16 B, 32 a turn, ring of 2^" + std::to_string(log2), warps, 3,
               32, 1, many(log2, log2 - 6, 1000), {});
  queue_line(bench, "many to many, 128 B cells", "polypath_bench_queue_warp_24_1", 24, 32, 1,
             many(17, 11, 1500), {});
  for (const unsigned log2 : {15U, 16U, 18U})
    queue_line(bench, "many to many, 128 B cells, ring of 2^" + std::to_string(log2),
               "polypath_bench_queue_warp_24_1", 24, 32, 1, many(log2, log2 - 6, 1500), {});
  queue_line(bench, "one block to one block, 16 B", warps, 3, 32, 1, single(threads, 2000), {});
  queue_line(bench, "one warp to one warp, 16 B", warps, 3, 32, 1, single(32, 2000), {});
  const Known sums{0, true};
  pair_line(bench, "pairs of blocks, 16 B, 4 a thread", "polypath_bench_pairs_3_4", 3, 4, false,
            sums);
  pair_line(bench, "pairs of blocks, 16 B", "polypath_bench_pairs_3_1", 3, 1, false, {0, true});
  pair_line(bench, "pairs of warps, 16 B, 4 a thread", "polypath_bench_pairs_3_4", 3, 4, true,
            sums);
  pair_line(bench, "pairs of warps, 128 B cells", "polypath_bench_pairs_24_1", 24, 1, true,
            {0, true});
  trip_line(bench, "one item, one way: pair", "polypath_bench_pair_trips");
  trip_line(bench, "one item, one way: queue", "polypath_bench_queue_trips");
  history_line(bench, "linearizable: a ring often full", 6);
  history_line(bench, "linearizable: a ring with room", 16);
}

}  // namespace messaging_bench
