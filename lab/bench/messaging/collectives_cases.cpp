// Collectives that kernels make: latencies, and sums that are compared with the host's.
#include <string>
#include <vector>

#include "bench_images.hpp"
#include "collectives_bench.h"
#include "groups.hpp"
#include "polypath/messaging/device_collectives.h"
#include "polypath/polypath.hpp"

namespace messaging_bench {
namespace {

using polypath::detail::check;
using polypath::device::collectives_view;

constexpr const char* kCollectives = "collectives";

/// What the ranks of the benchmark have in common.
class Ranks {
 public:
  Ranks(Bench& bench, std::size_t count)
      : bench_(bench), bytes_((count * sizeof(float) + 255) / 256 * 256) {
    for (int rank = 0; rank < bench.gpus(); ++rank) comms_.push_back(bench.comm(rank));
    const int ranks = bench.gpus();
    handles_.resize(comms_.size());
    memory_.resize(comms_.size());
    check(polypath_device_collectives_create_all(comms_.data(), ranks, handles_.data()));
    check(polypath_comm_alloc_all(comms_.data(), ranks, 2 * bytes_ + 256, memory_.data()));
  }
  ~Ranks() {
    const int ranks = static_cast<int>(comms_.size());
    polypath_comm_free_all(comms_.data(), ranks, memory_.data());
    polypath_device_collectives_destroy_all(handles_.data(), ranks);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  [[nodiscard]] CollectiveRun run(int rank) const {
    const auto own = static_cast<std::size_t>(rank);
    CollectiveRun run{};
    check(polypath_device_collectives_view(handles_[own], &run.view, sizeof run.view));
    for (int other = 0; other < bench_.gpus(); ++other) {
      auto* const at = static_cast<unsigned char*>(polypath_symmetric_address(memory_[own], other));
      run.send.at[other] = reinterpret_cast<float*>(at);
      run.recv.at[other] = reinterpret_cast<float*>(at + bytes_);
    }
    return run;
  }

 private:
  Bench& bench_;
  std::size_t bytes_;
  std::vector<polypath_comm*> comms_;
  std::vector<polypath_device_collectives*> handles_;
  std::vector<polypath_symmetric*> memory_;
};

/// Whose sum has one value in rank order, and hardly another in another order.
float value_of(int rank, std::size_t place) {
  const std::size_t mixed = (place * 2654435761U + static_cast<std::size_t>(rank) * 40503U) % 65521;
  return static_cast<float>(mixed) * 1e-3F - 30.0F;
}

void collective_line(Bench& bench, const std::string& line, const char* name, bool is_grid,
                     std::size_t count) {
  if (!bench.wants(line)) return;
  const int ranks = bench.gpus();
  Ranks all(bench, count);
  for (int rank = 0; rank < ranks && count > 0; ++rank) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = value_of(rank, i);
    const CollectiveRun run = all.run(rank);
    bench.gpu(rank).write(run.send.at[rank], values.data(), count * sizeof(float));
  }
  const std::uint32_t rounds = bench.sized(count > 100'000 ? 50U : 1000U, 3U);
  const unsigned threads = bench.sized(512U, 64U);
  const double us = bench.median_us(line, [&] {
    return bench.gpu(0).time_us([&] {
      for (int rank = ranks - 1; rank >= 0; --rank) {
        Gpu& gpu = bench.gpu(rank);
        CollectiveRun run = all.run(rank);
        run.count = count;
        run.rounds = rounds;
        gpu.launch(gpu.kernel(collectives_bench_image(), name),
                   is_grid ? bench.sized(gpu.processors(), 2U) : 1U, threads, run);
      }
    });
  });
  for (int rank = 0; rank < ranks; ++rank) bench.gpu(rank).synchronize();
  for (int rank = 0; rank < ranks && count > 0; ++rank) {
    const CollectiveRun run = all.run(rank);
    const auto received = bench.gpu(rank).read<float>(run.recv.at[rank], count);
    for (std::size_t i = 0; i < count; ++i) {
      float sum = value_of(0, i);
      for (int other = 1; other < ranks; ++other) sum += value_of(other, i);
      expect(received[i] == sum, line + ": element " + std::to_string(i) + " is another one");
    }
  }
  bench.figure(kCollectives, line, us / rounds, "us");
}

}  // namespace

void collectives_lines(Bench& bench) {
  const char* const block = "polypath_bench_collectives_block";
  const char* const grid = "polypath_bench_collectives_grid";
  collective_line(bench, "barrier, a block of each rank", block, false, 0);
  collective_line(bench, "barrier, the grid of each rank", grid, true, 0);
  collective_line(bench, "allreduce, 8 B, a block of each rank", block, false, 2);
  collective_line(bench, "allreduce, 8 KiB, a block of each rank", block, false,
                  bench.sized(std::size_t{2048}, std::size_t{200}));
  collective_line(bench, "allreduce, 8 B, the grid of each rank", grid, true, 2);
  collective_line(bench, "allreduce, 16 MiB, the grid of each rank", grid, true,
                  bench.sized(std::size_t{4} << 20, std::size_t{5000}));
}

}  // namespace messaging_bench
