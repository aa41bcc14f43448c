// The same program gets the same figures, to the last bit, in every process.
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "base/units.hpp"
#include "graph_calls.hpp"
#include "polypath_sim.h"
#include "transfers.hpp"

namespace polypath::sim::test {
namespace {

using Figures = std::array<double, 8>;

Figures measure() {
  Rig rig(64 * kMiB);
  return {direct(rig, 16 * kMiB),
          split(rig, 16 * kMiB, 4),
          ring(rig, 8 * kMiB),
          direct_and_gpu(rig, 64 * kMiB, 30, kMiB),
          both_directions_and_host(rig, 64 * kMiB, 7, kMiB, 3),
          into_gpu_over(rig, 4, 64 * kMiB, 3 * kMiB),
          graph_us(rig, 34),
          polypath_sim_clock_us()};
}

/// The figures of a process of its own.
Figures measure_elsewhere() {
  std::array<int, 2> ends{};
  EXPECT_EQ(0, pipe(ends.data()));
  const pid_t child = fork();
  if (child == 0) {
    const Figures figures = measure();
    const bool written = write(ends[1], figures.data(), sizeof figures) == sizeof figures;
    _exit(written && !testing::Test::HasFailure() ? 0 : 1);
  }
  close(ends[1]);
  Figures figures{};
  EXPECT_EQ(static_cast<ssize_t>(sizeof figures), read(ends[0], figures.data(), sizeof figures));
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  return figures;
}

TEST(Determinism, TwoRunsGiveTheSameFigures) {
  const Figures first = measure_elsewhere();
  EXPECT_EQ(first, measure_elsewhere());
  for (const double figure : first) EXPECT_GT(figure, 0);
}

}  // namespace
}  // namespace polypath::sim::test
