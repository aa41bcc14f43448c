// Channels from one GPU to another.
#include <random>

#include "bench_images.hpp"
#include "channel_bench.h"
#include "channel_ends.hpp"
#include "groups.hpp"

namespace messaging_bench {
namespace {

constexpr const char* kChannel = "active";

void trip_line(Bench& bench) {
  const TwoEnds ends(bench);
  const std::string line = ends.name("channel, 8 B, one way");
  if (!bench.wants(line)) return;
  const ChannelEnds channel(bench, {}, 4096);
  std::array<ChannelTrips, 2> trips{};
  for (unsigned end = 0; end < 2; ++end) {
    Gpu& gpu = bench.gpu(ends.gpu(end));
    trips[end] = {channel.views[end], end == 0 ? 1U : 0U, bench.sized(5000U, 20U),
                  static_cast<std::uint64_t*>(gpu.alloc(2 * sizeof(std::uint64_t))),
                  static_cast<Tally*>(gpu.alloc(sizeof(Tally)))};
  }
  std::uint64_t runs = 0;
  const double us = bench.median_us(line, [&] {
    ++runs;
    Gpu& timed = bench.gpu(0);
    return timed.time_us([&] {
      for (const unsigned end : {1U, 0U}) {
        Gpu& gpu = bench.gpu(ends.gpu(end));
        gpu.launch(gpu.kernel(channel_bench_image(), "polypath_bench_channel_trips"), 1, 32,
                   trips[end], ends.stream(end));
      }
    });
  });
  for (unsigned end = 0; end < 2; ++end) {
    const Tally tally = bench.gpu(ends.gpu(end)).read<Tally>(trips[end].tally, 1)[0];
    expect(tally.wrong == 0, line + ": a wrong message");
    expect(tally.items == trips[end].rounds * runs, line + ": messages lost");
  }
  for (int gpu = 0; gpu < bench.gpus(); ++gpu) bench.gpu(gpu).free_all();
  bench.figure(kChannel, line, us / trips[0].rounds / 2, "us");
}

void stream_line(Bench& bench, const std::string& name, std::size_t bytes, unsigned blocks) {
  const TwoEnds ends(bench);
  const std::string line = ends.name(name);
  if (!bench.wants(line)) return;
  polypath_channel_options options{};
  options.contexts = blocks;
  const ChannelEnds channel(bench, options, bytes);
  std::mt19937_64 random(7);
  std::vector<std::uint64_t> data(bytes / sizeof(std::uint64_t));
  for (std::uint64_t& each : data) each = random();
  std::array<ChannelStream, 2> runs{};
  for (unsigned end = 0; end < 2; ++end) {
    Gpu& gpu = bench.gpu(ends.gpu(end));
    auto* const failed = static_cast<std::uint32_t*>(gpu.alloc(sizeof(std::uint32_t)));
    unsigned char* const place =
        end == 0 ? static_cast<unsigned char*>(gpu.alloc(bytes)) : channel.windows[end];
    runs[end] = {channel.views[end], end == 0 ? 1U : 0U, bench.sized(8U, 2U), place, bytes, failed};
  }
  bench.gpu(ends.gpu(0)).write(runs[0].data, data.data(), bytes);
  bench.gpu(ends.gpu(1)).set(runs[1].data, 0xA5, bytes);
  const double us = bench.median_us(line, [&] {
    Gpu& timed = bench.gpu(ends.gpu(1));
    return timed.time_us([&] {
      for (const unsigned end : {0U, 1U}) {
        Gpu& gpu = bench.gpu(ends.gpu(end));
        gpu.launch(gpu.kernel(channel_bench_image(), "polypath_bench_channel_stream"), blocks,
                   bench.sized(512U, 64U), runs[end], ends.are_two ? 0 : 1 - end);
      }
    });
  });
  for (unsigned end = 0; end < 2; ++end)
    expect(bench.gpu(ends.gpu(end)).read<std::uint32_t>(runs[end].failed, 1)[0] == 0,
           line + ": a call failed");
  expect(bench.gpu(ends.gpu(1)).read<std::uint64_t>(runs[1].data, data.size()) == data,
         line + ": other bytes");
  for (int gpu = 0; gpu < bench.gpus(); ++gpu) bench.gpu(gpu).free_all();
  const double rate = static_cast<double>(bytes) * runs[0].rounds / us * 1e-3;
  if (ends.are_two)
    bench.figure(kChannel, line, rate, "GB/s", {}, {"remote_stores"});
  else
    bench.figure(kChannel, line, rate, "GB/s", {}, {"hbm_read"});
}

}  // namespace

void channel_lines(Bench& bench) {
  trip_line(bench);
  // Both ends' blocks run at once.
  const unsigned blocks =
      bench.sized(bench.gpus() > 1 ? bench.gpu(0).processors() : bench.gpu(0).processors() / 2, 2U);
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  stream_line(bench, "channel, large messages, 256 MiB by all blocks",
              bench.sized(256 * kMiB, std::size_t{32768}), blocks);
  stream_line(bench, "channel, large messages, 64 MiB by all blocks",
              bench.sized(64 * kMiB, std::size_t{16384}), blocks);
  stream_line(bench, "channel, large messages, 4 MiB by all blocks",
              bench.sized(4 * kMiB, std::size_t{8192}), blocks);
  stream_line(bench, "channel, large messages, 1 MiB by one block",
              bench.sized(kMiB, std::size_t{4096}), 1);
}

}  // namespace messaging_bench
