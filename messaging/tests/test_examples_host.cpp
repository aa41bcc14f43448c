// The kernels of examples/messaging over hostile schedules: to the last bit what the host computes
// alone, on any number of GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "../../examples/messaging/himeno_host.hpp"
#include "../../examples/messaging/queens_run.h"
#include "channel_memory.hpp"
#include "polypath/device/detail/channel_lists.cuh"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using messaging_example::HimenoResult;
using messaging_example::HimenoRun;
using messaging_example::HimenoSize;

constexpr HimenoSize kSize{10, 7, 38};
constexpr std::uint32_t kIterations = 4;

struct HimenoCase {
  std::uint32_t ranks;
  std::uint32_t blocks;
  std::uint32_t eager_bytes;  ///< planes go through rings, or are put
};

/// Empty, or what was wrong.
std::string run_himeno(const HimenoCase& test_case, std::uint64_t seed,
                       const HimenoResult& expected) {
  const std::size_t grid = (kSize.cells() * sizeof(float) + 127) / 128 * 128;
  ChannelMemory memory({.ranks = test_case.ranks,
                        .contexts = test_case.blocks,
                        .units_log2 = 8,
                        .eager_bytes = test_case.eager_bytes},
                       2 * grid);
  const std::vector<float> begin = messaging_example::himeno_begin(kSize);
  std::vector<std::vector<float>> sums(test_case.ranks);
  std::vector<std::array<std::uint64_t, 2>> gates(test_case.ranks);
  std::vector<std::uint32_t> failed(test_case.ranks, 0);
  std::vector<HimenoRun> runs;
  std::vector<std::vector<simt::Launch>> rows;
  for (std::uint32_t rank = 0; rank < test_case.ranks; ++rank) {
    const auto part = messaging_example::part_of(kSize, rank, test_case.ranks);
    sums[rank].assign(std::size_t{part.planes} * kSize.rows, -1);
    HimenoRun run{memory.view(rank), {},          part.planes,       kSize.rows,
                  kSize.width,       kIterations, sums[rank].data(), gates[rank].data(),
                  &failed[rank]};
    for (unsigned side = 0; side < 2; ++side) {
      run.pressure[side] = reinterpret_cast<float*>(memory.window(rank) + side * grid);
      std::memcpy(run.pressure[side], begin.data() + (part.first - 1) * kSize.plane(),
                  (part.planes + 2) * kSize.plane() * sizeof(float));
    }
    runs.push_back(run);
    rows.push_back(
        {simt::launch("messaging_himeno", static_cast<int>(rank), test_case.blocks, 64, run)});
  }
  simt::RunOptions options;
  options.seed = seed;
  const std::string error = simt::run(rows, options);
  if (!error.empty()) return error;
  std::vector<float> all_sums;
  for (std::uint32_t rank = 0; rank < test_case.ranks; ++rank) {
    if (failed[rank] != 0) return "a block failed";
    const auto part = messaging_example::part_of(kSize, rank, test_case.ranks);
    const float* const actual = runs[rank].pressure[kIterations % 2] + kSize.plane();
    const float* const expected_part = expected.pressure.data() + part.first * kSize.plane();
    if (std::memcmp(actual, expected_part, part.planes * kSize.plane() * sizeof(float)) != 0)
      return "another pressure";
    all_sums.insert(all_sums.end(), sums[rank].begin(), sums[rank].end());
  }
  const double residual = messaging_example::residual_of(kSize, all_sums);
  return std::bit_cast<std::uint64_t>(residual) == std::bit_cast<std::uint64_t>(expected.residual)
             ? ""
             : "another residual";
}

class Himeno : public testing::TestWithParam<HimenoCase> {
 protected:
  void TearDown() override { active_mutant<device::channel_mutant> = device::channel_mutant::none; }
  HimenoResult expected_ = messaging_example::himeno_alone(kSize, kIterations);
};

TEST_P(Himeno, EqualsTheHostBitForBit) {
  EXPECT_GT(expected_.residual, 0);
  for (std::uint64_t seed = 1; seed <= 2; ++seed)
    ASSERT_EQ(run_himeno(GetParam(), seed, expected_), "") << seed;
}
INSTANTIATE_TEST_SUITE_P(Examples, Himeno,
                         testing::Values(HimenoCase{.ranks = 1, .blocks = 2, .eager_bytes = 200},
                                         HimenoCase{.ranks = 2, .blocks = 2, .eager_bytes = 1000},
                                         HimenoCase{.ranks = 2, .blocks = 2, .eager_bytes = 200},
                                         HimenoCase{.ranks = 3, .blocks = 1, .eager_bytes = 100},
                                         HimenoCase{.ranks = 4, .blocks = 2, .eager_bytes = 100}));

TEST_F(Himeno, KnowsHalosThatCameTooLate) {
  active_mutant<device::channel_mutant> = device::channel_mutant::announced_before_the_bytes;
  bool is_found = false;
  for (std::uint64_t seed = 1; seed <= 300 && !is_found; ++seed)
    is_found = !run_himeno({2, 2, 200}, seed, expected_).empty();
  EXPECT_TRUE(is_found) << "of 300 seeds";
}

struct QueensCase {
  std::uint32_t size;
  std::uint32_t shared_rows;
  unsigned capacity_log2;
  std::uint64_t solutions;
};
class Queens : public testing::TestWithParam<QueensCase> {};

TEST_P(Queens, SolutionsAreCounted) {
  const QueensCase& test_case = GetParam();
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    QueueMemory memory(3, test_case.capacity_log2, 0);
    std::uint64_t pending = 0;
    std::uint64_t solutions = 0;
    std::uint64_t boards = 0;
    const messaging_example::QueensRun run{memory.view(), test_case.size, test_case.shared_rows,
                                           &pending,      &solutions,     &boards};
    simt::RunOptions options;
    options.seed = seed;
    ASSERT_EQ(simt::run({{simt::launch("messaging_queens", 0, 2, 64, run)}}, options), "");
    EXPECT_EQ(solutions, test_case.solutions) << seed;
    EXPECT_EQ(pending, 0U);
    EXPECT_GT(boards, test_case.size);
  }
}
INSTANTIATE_TEST_SUITE_P(
    Examples, Queens,
    testing::Values(QueensCase{.size = 6, .shared_rows = 3, .capacity_log2 = 6, .solutions = 4},
                    QueensCase{.size = 8, .shared_rows = 2, .capacity_log2 = 6, .solutions = 92},
                    QueensCase{.size = 7, .shared_rows = 4, .capacity_log2 = 3, .solutions = 40}));

}  // namespace
}  // namespace polypath::test
