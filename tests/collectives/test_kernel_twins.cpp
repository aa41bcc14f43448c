// The collectives' kernels, run as twins whose threads take turns at random and whose stores arrive
// late: every byte that every rank has after every call of a row.
#include <gtest/gtest.h>

#include "twin_ranks.hpp"

namespace polypath::test {
namespace {

/// Small rings and regions: they go round often.
ScratchShape small(std::uint32_t ranks) { return {ranks, 4, 4, 1024, 8 * 1024}; }

class KernelTwins : public testing::TestWithParam<std::uint32_t> {};

TEST_P(KernelTwins, RandomRowsOfCallsLeaveEveryByteRight) {
  Random random(GetParam());
  constexpr int kRows = random_rows(12);
  TwinRanks ranks(small(GetParam()));
  for (int row = 0; row < kRows; ++row) {
    std::vector<CollectiveCase> cases;
    for (int call = 0; call < 4; ++call)
      cases.push_back(random_case(random, ranks.shape(), 24 * 1024, 4));
    ASSERT_EQ("", ranks.run_row(cases, random())) << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, KernelTwins, testing::Range(1U, kMostRanks + 1));

TEST(KernelTwinsOf, EveryTypeAndOperatorIsExactInEveryForm) {
  Random random(7);
  TwinRanks ranks(small(3));
  for (int type = 0; type < 10; ++type)
    for (int reduction = 0; reduction < 5; ++reduction) {
      std::vector<CollectiveCase> cases;
      for (const KernelFamily family : {KernelFamily::cells, KernelFamily::channels})
        for (const int stages : {1, 2}) {
          CollectiveCase what;
          what.family = family;
          what.type = static_cast<DataType>(type);
          what.reduction = static_cast<Operator>(reduction);
          what.ranks = 3;
          what.count = 517;
          what.stages = stages;
          what.blocks = 2;
          cases.push_back(what);
        }
      ASSERT_EQ("", ranks.run_row(cases, random()));
    }
}

TEST(KernelTwinsOf, CountsFromNothingToMoreThanOneRowAreRight) {
  Random random(8);
  TwinRanks ranks(small(4));
  for (const CollectiveOp op :
       {CollectiveOp::allreduce, CollectiveOp::reduce_scatter, CollectiveOp::all_gather,
        CollectiveOp::broadcast, CollectiveOp::reduce, CollectiveOp::all_to_all})
    for (const KernelFamily family : {KernelFamily::cells, KernelFamily::channels}) {
      std::vector<CollectiveCase> cases;
      for (const std::uint64_t count : {0, 1, 3, 4, 5, 95, 96, 97, 191, 193, 385}) {
        CollectiveCase what;
        what.family = family;
        what.op = op;
        what.type = DataType::float64;
        what.ranks = 4;
        what.root = 2;
        what.count = count;
        what.blocks = 3;
        cases.push_back(what);
      }
      ASSERT_EQ("", ranks.run_row(cases, random()));
    }
}

class KernelThatWaits : public testing::TestWithParam<KernelFamily> {
 protected:
  static CollectiveCase call(CollectiveOp op) {
    CollectiveCase what;
    what.family = GetParam();
    what.op = op;
    what.ranks = 3;
    what.root = 1;
    what.count = 1000;
    what.blocks = 2;
    return what;
  }
};

TEST_P(KernelThatWaits, GivesUpAfterTheTimeLimitAndSaysWhoDidNotCome) {
  for (const CollectiveOp op :
       {CollectiveOp::allreduce, CollectiveOp::all_to_all, CollectiveOp::broadcast}) {
    TwinRanks ranks(small(3));
    EXPECT_EQ("", ranks.run_without(1, call(op), 5));
    const StatusRecord& status = ranks.status(0);
    EXPECT_EQ(1U, status.given_up);
    EXPECT_EQ(7U, status.kernel);
    EXPECT_EQ(StatusRecord::time_limit, status.reason);
    EXPECT_EQ(1U, status.waited_for_rank);
    EXPECT_LT(status.seen, status.expected);
    EXPECT_EQ(0U, ranks.status(1).given_up);
  }
}

TEST_P(KernelThatWaits, GivesUpWhenTheAbortWordIsSet) {
  TwinRanks ranks(small(3));
  ranks.abort_word(0) = ranks.abort_word(2) = 1;
  EXPECT_EQ("", ranks.run_without(1, call(CollectiveOp::allreduce), 6));
  EXPECT_EQ(StatusRecord::aborted, ranks.status(0).reason);
  EXPECT_EQ(StatusRecord::aborted, ranks.status(2).reason);
}

INSTANTIATE_TEST_SUITE_P(Families, KernelThatWaits,
                         testing::Values(KernelFamily::cells, KernelFamily::channels));

}  // namespace
}  // namespace polypath::test
