// What the tests of the kernels' host builds are worth: each defect of mutants.h is found within a
// few rows of calls, and without one nothing is.
#include <gtest/gtest.h>

#include "collectives/kernels/mutants.h"
#include "host_kernel_ranks.hpp"

namespace polypath {

namespace test {
namespace {

struct MutantCase {
  Fault fault;
  const char* name;
  KernelFamily family;
  KernelForm form = {};
};
constexpr KernelForm kTree{SumOrder::tree, false};
constexpr KernelForm kUneven{SumOrder::rank, true};

void PrintTo(const MutantCase& has_mutant, std::ostream* to) { *to << has_mutant.name; }

constexpr KernelFamily kCells = KernelFamily::cells;
constexpr KernelFamily kLines = KernelFamily::lines;
constexpr KernelFamily kChannels = KernelFamily::channels;

/// Calls that use every slot and cell again and again. Those with a root let ranks run ahead of
/// each other. Every other row of cells has none, and calls so short that a rank may begin the next
/// one while another still looks for what it was sent.
std::vector<CollectiveCase> row_for(KernelFamily family, int row, Random& random,
                                    KernelForm form = {}) {
  const bool is_cells = family != kChannels;  // or lines, which have the same rows
  const bool is_short = is_cells && row % 2 == 0;
  std::vector<CollectiveCase> cases;
  for (int call = 0; call < (is_short ? 40 : is_cells ? 12 : 5); ++call) {
    CollectiveCase what;
    what.family = family;
    const std::uint64_t choice = is_short ? 2 : random() % 4;
    what.op = choice == 0   ? CollectiveOp::broadcast
              : choice == 1 ? CollectiveOp::reduce
                            : CollectiveOp::allreduce;
    what.type = DataType::float32;
    what.ranks = 4;
    what.root = static_cast<std::uint32_t>(random() % 4);
    what.stages = choice == 3 ? 2 : 1;
    what.count = is_short   ? 1 + random() % 2
                 : is_cells ? (family == kLines ? 300 : 100) + random() % 200
                            : 1500 + random() % 500;
    what.blocks = is_short ? 1 : static_cast<std::uint32_t>(1 + random() % 3);
    what.tile_bytes = 512;
    what.lag = 2;
    if (!is_cells) make_blocks_unlike(random, what);
    what.order = form.order;
    if (form.order == SumOrder::tree) what.type = DataType::bfloat16;
    if (form.is_uneven) {
      what.op = call % 2 == 0 ? CollectiveOp::all_gather : CollectiveOp::reduce_scatter;
      make_uneven(random, what);
    }
    cases.push_back(what);
  }
  return cases;
}

/// The number of the row that was found wrong; 0: none of them.
int first_wrong_row(KernelFamily family, int rows, KernelForm form = {}) {
  Random random(1);
  for (int row = 1; row <= rows; ++row) {
    HostKernelRanks ranks({4, 3, 4, 512, 8 * 1024, 8 * 1024});
    for (int repeat = 0; repeat < 2; ++repeat)
      if (!ranks.run_row(row_for(family, row, random, form), random()).empty()) return row;
  }
  return 0;
}

class Mutants : public testing::TestWithParam<MutantCase> {
 protected:
  void TearDown() override { active_mutant<Fault> = Fault::none; }
};

TEST_P(Mutants, MakesRunsFail) {
  active_mutant<Fault> = GetParam().fault;
  EXPECT_NE(0, first_wrong_row(GetParam().family, 40, GetParam().form));
}

INSTANTIATE_TEST_SUITE_P(
    All, Mutants,
    testing::Values(
        MutantCase{Fault::flag_before_data, "FlagBeforeData", kChannels},
        MutantCase{Fault::flag_without_fence, "FlagWithoutFence", kChannels},
        MutantCase{Fault::no_wait_for_data, "NoWaitForData", kChannels},
        MutantCase{Fault::no_wait_for_credit, "NoWaitForCredit", kChannels},
        MutantCase{Fault::credit_too_large, "CreditTooLarge", kChannels},
        MutantCase{Fault::credit_before_taking, "CreditBeforeTaking", kChannels},
        MutantCase{Fault::counts_not_kept, "CountsNotKept", kChannels},
        MutantCase{Fault::own_part_first, "OwnPartFirstInChannels", kChannels},
        MutantCase{Fault::channels_by_rank, "ChannelsByRank", kChannels},
        MutantCase{Fault::blocks_for_channels, "BlocksForChannels", kChannels},
        MutantCase{Fault::own_part_first, "OwnPartFirstInCells", kCells},
        MutantCase{Fault::ranks_in_turn, "RanksInTurnInChannels", kChannels, kTree},
        MutantCase{Fault::ranks_in_turn, "RanksInTurnInCells", kCells, kTree},
        MutantCase{Fault::node_not_rounded, "NodeNotRoundedInChannels", kChannels, kTree},
        MutantCase{Fault::node_not_rounded, "NodeNotRoundedInCells", kCells, kTree},
        MutantCase{Fault::parts_at_begin, "PartsAtBeginInChannels", kChannels, kUneven},
        MutantCase{Fault::parts_at_begin, "PartsAtBeginInCells", kCells, kUneven},
        MutantCase{Fault::peer_part_pushed, "PeerPartPushedInChannels", kChannels, kUneven},
        MutantCase{Fault::halves_not_alternated, "HalvesNotAlternated", kCells},
        MutantCase{Fault::flag_not_counted, "FlagNotCounted", kCells},
        MutantCase{Fault::half_a_pair_looked_at, "HalfAPairLookedAt", kCells},
        MutantCase{Fault::no_arrivals, "NoArrivals", kCells},
        MutantCase{Fault::call_counted_too_early, "CallCountedTooEarly", kCells},
        MutantCase{Fault::own_part_first, "OwnPartFirstInLines", kLines},
        MutantCase{Fault::halves_not_alternated, "HalvesNotAlternatedInLines", kLines},
        MutantCase{Fault::flag_not_counted, "FlagNotCountedInLines", kLines},
        MutantCase{Fault::no_arrivals, "NoArrivalsInLines", kLines},
        MutantCase{Fault::call_counted_too_early, "CountedTooEarlyInLines", kLines},
        MutantCase{Fault::line_flag_early, "LineFlagEarly", kLines},
        MutantCase{Fault::older_flag_accepted, "OlderFlagAccepted", kLines},
        MutantCase{Fault::data_before_flag, "DataBeforeFlag", kLines},
        MutantCase{Fault::one_line_of_row_seen, "OneLineOfRowSeen", kLines}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

/// Whether ranks whose operators differ end with an error.
bool finds_other_operator(KernelFamily family) {
  CollectiveCase what;
  what.family = family;
  what.ranks = 3;
  what.count = 100;
  std::vector<CollectiveCase> by_rank(3, what);
  by_rank[2].reduction = Operator::max;
  HostKernelRanks ranks({3, 3, 4, 1024, 8 * 1024, 8 * 1024});
  EXPECT_EQ("", ranks.run_apart(by_rank, 0, 3));
  return ranks.status(0).reason == wait_error::mismatch;
}

TEST(MarkMutants, CallNotCompared_IsFound) {
  for (const KernelFamily family : kKernelFamilies) {
    EXPECT_TRUE(finds_other_operator(family));
    active_mutant<Fault> = Fault::call_not_compared;
    EXPECT_FALSE(finds_other_operator(family));
    active_mutant<Fault> = Fault::none;
  }
}

/// Whether the marks of the two latest calls are both there: a rank may begin a call while another
/// still looks for the mark of the one before.
bool keeps_two_marks(KernelFamily family) {
  CollectiveCase what;
  what.family = family;
  what.ranks = 3;
  what.count = 10;
  HostKernelRanks ranks({3, 3, 4, 1024, 8 * 1024, 8 * 1024});
  EXPECT_EQ("", ranks.run_row({what, what, what}, 5));
  return ranks.marked_call(0, 1, 2) == 3 && ranks.marked_call(0, 0, 2) == 2;
}

TEST(MarkMutants, MarksNotAlternated_IsFound) {
  for (const KernelFamily family : kKernelFamilies) {
    EXPECT_TRUE(keeps_two_marks(family));
    active_mutant<Fault> = Fault::marks_not_alternated;
    EXPECT_FALSE(keeps_two_marks(family));
    active_mutant<Fault> = Fault::none;
  }
}

/// What is wrong with a rank's call that it makes after the others have timed out in that call, and
/// in the next ones.
std::string call_of_late_rank(KernelFamily family, std::size_t calls, bool uncounted) {
  CollectiveCase what;
  what.family = family;
  what.ranks = 3;
  what.stages = 1;  // its data come from ranks that have timed out since
  what.count = 300;
  what.blocks = 2;
  HostKernelRanks ranks({3, 3, 4, 1024, 8 * 1024, 8 * 1024});
  std::string wrong = ranks.run_late(1, std::vector(calls, what), 5, uncounted);
  EXPECT_EQ(1U, ranks.status(0).given_up);
  return wrong;
}

TEST(LateRank, TakesNoDataOfALaterCall) {
  for (const KernelFamily family : {kCells, kLines}) {
    for (const std::size_t calls : {1, 2, 3})
      EXPECT_EQ("", call_of_late_rank(family, calls, false));
    EXPECT_NE("", call_of_late_rank(family, 2, true));
  }
}

/// A call of several rows of cells, and the same one when its flags have come round, with all calls
/// between them that clear cells. Empty, or what was wrong.
std::string comes_round(std::uint64_t seed) {
  constexpr std::uint64_t kCycle = std::uint64_t{1} << 31;
  constexpr std::uint64_t kClearing = 1 << 16;
  constexpr std::uint64_t kRows = 8;
  constexpr std::uint64_t kNumber = 100;
  HostKernelRanks ranks({3, 3, 4, 1024, kRows * kCellRowBytes});
  CollectiveCase large;
  large.family = kCells;
  large.op = seed % 2 == 0 ? CollectiveOp::allreduce : CollectiveOp::all_to_all;
  large.stages = seed % 4 == 0 ? 2 : 1;
  large.ranks = 3;
  large.count = 3 * kCellRowData / size_of(large.type);
  CollectiveCase small = large;
  small.count = 5;
  ranks.set_calls_of_cells(kNumber);
  std::string wrong = ranks.run_row({large}, seed);
  for (std::uint64_t row = 1; row <= kRows && wrong.empty(); ++row) {
    ranks.set_calls_of_cells(row * kClearing);
    wrong = ranks.run_row({small, small}, seed + row);
  }
  ranks.set_calls_of_cells(kNumber + kCycle);
  return wrong.empty() ? ranks.run_row({large}, seed + 100) : wrong;
}

TEST(CellMutants, CellsNotCleared_IsFound) {
  std::string errors;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    EXPECT_EQ("", comes_round(seed)) << "seed " << seed;
    active_mutant<Fault> = Fault::cells_not_cleared;
    errors += comes_round(seed);
    active_mutant<Fault> = Fault::none;
  }
  EXPECT_NE("", errors);
}

TEST(WithoutFault, NumbersOfCalls_ComeRound) {
  Random random(3);
  for (const KernelFamily family : kKernelFamilies) {
    HostKernelRanks ranks({4, 3, 4, 512, 8 * 1024, 8 * 1024});
    ranks.set_calls_of_cells((std::uint64_t{1} << 31) - 3);
    ranks.set_calls((std::uint64_t{1} << 32) - 3);
    for (int row = 1; row <= 2; ++row)
      EXPECT_EQ("", ranks.run_row(row_for(family, row, random), random()));
  }
}

TEST(WithoutFault, NothingIsFound) {
  EXPECT_EQ(0, first_wrong_row(kCells, 15));
  EXPECT_EQ(0, first_wrong_row(kLines, 15));
  EXPECT_EQ(0, first_wrong_row(kChannels, 15));
  for (const KernelForm form : {kTree, kUneven})
    for (const KernelFamily family : {kCells, kChannels})
      EXPECT_EQ(0, first_wrong_row(family, 5, form));
}

/// Where what a warp stores of a line comes in parts, lines are wrong: the trial of paths matters.
TEST(WithoutFault, TornLines_AreFound) {
  Random random(4);
  int wrong = 0;
  for (int row = 1; row <= 10; ++row) {
    HostKernelRanks ranks({4, 3, 4, 512, 8 * 1024, 8 * 1024});
    ranks.tear_lines();
    wrong += ranks.run_row(row_for(kLines, row, random), random()).empty() ? 0 : 1;
  }
  EXPECT_GE(wrong, 5) << "of 10 rows";
}

}  // namespace
}  // namespace test
}  // namespace polypath
