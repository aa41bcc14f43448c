// Active messages from one GPU to another.
#include "bench_images.hpp"
#include "channel_bench.h"
#include "channel_ends.hpp"
#include "groups.hpp"

namespace messaging_bench {
namespace {

constexpr const char* kActiveMessages = "active";

void active_line(Bench& bench, const std::string& line, const char* name, bool replies) {
  const TwoEnds ends(bench);
  const std::string full = ends.name(line);
  if (!bench.wants(full)) return;
  const unsigned threads = bench.sized(512U, 64U);
  const unsigned blocks =
      bench.sized(ends.are_two ? bench.gpu(0).processors() : bench.gpu(0).processors() / 2, 2U);
  const std::uint32_t calls = bench.sized(1000U, 5U);
  polypath_active_messages_options options{};
  options.argument_bytes = 32;
  options.shards = bench.sized(256U, 2U);
  options.capacity = bench.sized(512U, 128U);
  const std::uint64_t all = std::uint64_t{blocks} * threads * calls;
  std::uint64_t runs = 0;
  Tally total{};
  const double us = bench.median_us(full, [&] {
    // close() cannot be undone, so each run has rings of its own.
    const ActiveEnds rings(bench, options);
    std::array<Tally*, 2> tallies{};
    std::array<ActiveRun, 2> run{};
    for (unsigned end = 0; end < 2; ++end) {
      Gpu& gpu = bench.gpu(ends.gpu(end));
      tallies[end] = static_cast<Tally*>(gpu.alloc(sizeof(Tally)));
      auto* const done = static_cast<std::uint32_t*>(gpu.alloc(sizeof(std::uint32_t)));
      run[end] = {rings.views[end], end == 0 ? blocks : 0, blocks, calls, 1, done, tallies[end]};
    }
    CUfunc_st* const sends = bench.gpu(ends.gpu(0)).kernel(active_bench_image(), name);
    CUfunc_st* const executes = bench.gpu(ends.gpu(1)).kernel(active_bench_image(), name);
    Gpu& timed = bench.gpu(ends.gpu(1));
    const double took = timed.time_us([&] {
      bench.gpu(ends.gpu(0)).launch(sends, blocks, threads, run[0], 1);
      timed.launch(executes, blocks, threads, run[1]);
    });
    ++runs;
    const unsigned counts = replies ? 0 : 1;  // the side that has executed what counts
    const Tally tally = bench.gpu(ends.gpu(counts)).read<Tally>(tallies[counts], 1)[0];
    total.items += tally.items;
    total.sum_of_ids += tally.sum_of_ids;
    total.wrong += tally.wrong;
    for (int gpu = 0; gpu < bench.gpus(); ++gpu) bench.gpu(gpu).free_all();
    return took;
  });
  expect(total.wrong == 0, full + ": wrong arguments");
  expect(total.items == all * runs, full + ": messages lost or executed twice");
  expect(total.sum_of_ids == all * (all - 1) / 2 * runs, full + ": not these messages");
  bench.figure(kActiveMessages, full, static_cast<double>(all) / us * 1e-3, "G messages/s", {},
               {"remote_stores", "fetch_adds"});
}

}  // namespace

void active_lines(Bench& bench) {
  active_line(bench, "active messages, 32 B of arguments, executed", "polypath_bench_active",
              false);
  active_line(bench, "active messages, 32 B of arguments, executed and replied",
              "polypath_bench_active_replied", true);
}

}  // namespace messaging_bench
