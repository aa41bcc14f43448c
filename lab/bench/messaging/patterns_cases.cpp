// The communication patterns of applications as the paper found them (section 3): bulk-synchronous
// exchange, at most 1024 messages in a queue, 20 queues.
#include "bench_images.hpp"
#include "channel_bench.h"
#include "channel_ends.hpp"
#include "groups.hpp"

namespace messaging_bench {
namespace {

constexpr const char* kPatterns = "active";

void steps_line(Bench& bench, unsigned queues, unsigned messages, unsigned message_words) {
  const TwoEnds ends(bench);
  const std::string line = ends.name("bulk-synchronous, " + std::to_string(queues) + " queues, " +
                                     std::to_string(messages) + " messages of " +
                                     std::to_string(8 * message_words) + " B a step");
  if (!bench.wants(line)) return;
  polypath_channel_options options{};
  options.contexts = queues;
  options.requests = 1024;
  options.ring_bytes = 1U << 16;
  const ChannelEnds channel(bench, options, 4096);
  std::array<ChannelSteps, 2> steps{};
  const std::size_t all = std::size_t{queues} * messages;
  for (unsigned end = 0; end < 2; ++end) {
    Gpu& gpu = bench.gpu(ends.gpu(end));
    const auto words = [&] {
      return static_cast<std::uint64_t*>(gpu.alloc(all * message_words * 8));
    };
    steps[end] = {
        channel.views[end],
        bench.sized(20U, 2U),
        messages,
        message_words,
        words(),
        words(),
        static_cast<polypath::device::request*>(gpu.alloc(all * sizeof(polypath::device::request))),
        static_cast<Tally*>(gpu.alloc(sizeof(Tally)))};
  }
  std::uint64_t runs = 0;
  const double us = bench.median_us(line, [&] {
    ++runs;
    return bench.gpu(0).time_us([&] {
      for (const unsigned end : {1U, 0U}) {
        Gpu& gpu = bench.gpu(ends.gpu(end));
        gpu.launch(gpu.kernel(channel_bench_image(), "polypath_bench_channel_steps"), queues, 32,
                   steps[end], ends.stream(end));
      }
    });
  });
  const std::uint64_t sent = all * steps[0].steps;
  for (unsigned end = 0; end < 2; ++end) {
    const Tally tally = bench.gpu(ends.gpu(end)).read<Tally>(steps[end].tally, 1)[0];
    expect(tally.wrong == 0, line + ": a wrong message");
    expect(tally.items == sent * runs, line + ": messages lost");
  }
  for (int gpu = 0; gpu < bench.gpus(); ++gpu) bench.gpu(gpu).free_all();
  // To each end; the queues know nothing of each other.
  Known known;
  known.adds_up = true;
  bench.figure(kPatterns, line, static_cast<double>(sent) / us, "M messages/s", known);
}

}  // namespace

void patterns_lines(Bench& bench) {
  const unsigned queues = bench.sized(20U, 2U);
  for (const unsigned messages : {64U, 256U, 1000U}) {
    if (bench.quick() && messages > 64) continue;
    steps_line(bench, queues, bench.sized(messages, 8U), 1);
    steps_line(bench, queues, bench.sized(messages, 8U), 32);
  }
}

}  // namespace messaging_bench
