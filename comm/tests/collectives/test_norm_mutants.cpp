// What the tests of the kernels that normalise are worth: each defect is found within a few rows of
// calls, and without one nothing is.
#include <gtest/gtest.h>

#include "collectives/kernels/mutants.h"
#include "norm_kernel_ranks.hpp"

namespace polypath {

namespace test {
namespace {

struct NormMutant {
  Fault fault;
  const char* name;
};
void PrintTo(const NormMutant& mutant, std::ostream* to) { *to << mutant.name; }

/// Calls that use every cell again and again; every other row of calls so short that a rank may
/// begin the next one while another still looks for what it was sent.
std::vector<MixedCase> row_for(int row, Random& random) {
  const bool is_short = row % 2 == 0;
  std::vector<MixedCase> cases;
  for (int call = 0; call < (is_short ? 30 : 8); ++call) {
    NormCase what = random_norm(random, 4, is_short ? 16 : 1000, 4000, is_short ? 1 : 3);
    if (is_short) what.rows = 1;
    cases.push_back({true, what, {}});
  }
  return cases;
}

/// The number of the row that was found wrong; 0: none of them.
int first_wrong_row(int rows) {
  Random random(1);
  for (int row = 1; row <= rows; ++row) {
    NormKernelRanks ranks({4, 3, 4, 512, 16 * 1024});
    for (int repeat = 0; repeat < 2; ++repeat)
      if (!ranks.run_row(row_for(row, random), random()).empty()) return row;
  }
  return 0;
}

class NormMutants : public testing::TestWithParam<NormMutant> {
 protected:
  void TearDown() override { active_mutant<Fault> = Fault::none; }
};

TEST_P(NormMutants, MakesRunsFail) {
  active_mutant<Fault> = GetParam().fault;
  EXPECT_NE(0, first_wrong_row(40));
}

INSTANTIATE_TEST_SUITE_P(
    All, NormMutants,
    testing::Values(NormMutant{Fault::part_not_waited_for, "PartNotWaitedFor"},
                    NormMutant{Fault::squares_not_waited_for, "SquaresNotWaitedFor"},
                    NormMutant{Fault::squares_in_other_order, "SquaresInOtherOrder"},
                    NormMutant{Fault::sum_loaded_before_its_flag, "SumLoadedBeforeItsFlag"},
                    NormMutant{Fault::own_part_first, "OwnPartFirst"},
                    NormMutant{Fault::halves_not_alternated, "HalvesNotAlternated"},
                    NormMutant{Fault::flag_not_counted, "FlagNotCounted"},
                    NormMutant{Fault::call_counted_too_early, "CallCountedTooEarly"},
                    NormMutant{Fault::half_a_pair_looked_at, "HalfAPairLookedAt"}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

/// A call of several rows of cells, and the same one when its flags have come round, with all calls
/// between them that clear cells; these are collectives in turns. Empty, or what was wrong.
std::string comes_round(std::uint64_t seed) {
  constexpr std::uint64_t kCycle = std::uint64_t{1} << 31;
  constexpr std::uint64_t kClearing = 1 << 16;
  constexpr std::uint64_t kRows = 8;
  constexpr std::uint64_t kNumber = 100;
  NormKernelRanks ranks({3, 3, 4, 1024, kRows * kCellRowBytes});
  MixedCase large;
  large.norm.ranks = 3;
  large.norm.rows = 4;
  large.norm.hidden = 400;
  large.norm.blocks = 2;
  large.norm.team = 2;
  MixedCase small = large;
  small.norm.rows = 1;
  small.norm.hidden = 8;
  small.is_norm = seed % 2 == 0;
  small.collective.family = KernelFamily::cells;
  small.collective.ranks = 3;
  small.collective.count = 5;
  ranks.set_calls_of_cells(kNumber);
  std::string wrong = ranks.run_row({large}, seed);
  for (std::uint64_t row = 1; row <= kRows && wrong.empty(); ++row) {
    ranks.set_calls_of_cells(row * kClearing);
    wrong = ranks.run_row({small, small}, seed + row);
  }
  ranks.set_calls_of_cells(kNumber + kCycle);
  return wrong.empty() ? ranks.run_row({large}, seed + 100) : wrong;
}

TEST(NormCellMutants, CellsNotCleared_IsFound) {
  std::string errors;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    EXPECT_EQ("", comes_round(seed)) << "seed " << seed;
    active_mutant<Fault> = Fault::cells_not_cleared;
    errors += comes_round(seed);
    active_mutant<Fault> = Fault::none;
  }
  EXPECT_NE("", errors);
}

/// Whether ranks whose epsilons differ end with an error.
bool finds_other_epsilon() {
  MixedCase what;
  what.norm.ranks = 3;
  what.norm.hidden = 400;
  std::vector<MixedCase> by_rank(3, what);
  by_rank[2].norm.epsilon = 1;
  NormKernelRanks ranks({3, 3, 4, 1024, 8 * 1024});
  EXPECT_EQ("", ranks.run_apart(by_rank, 3));
  return ranks.status(0).reason == wait_error::mismatch;
}

TEST(NormMarkMutants, CallNotCompared_IsFound) {
  EXPECT_TRUE(finds_other_epsilon());
  active_mutant<Fault> = Fault::call_not_compared;
  EXPECT_FALSE(finds_other_epsilon());
  active_mutant<Fault> = Fault::none;
}

TEST(WithoutNormFault, NothingIsFound) { EXPECT_EQ(0, first_wrong_row(15)); }

}  // namespace
}  // namespace test
}  // namespace polypath
