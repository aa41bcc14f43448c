// The collectives' kernels, run as host builds whose threads take turns at random and whose stores arrive
// late: every byte that every rank has after every call of a row.
#include <gtest/gtest.h>

#include "collectives/plan/request.hpp"
#include "host_kernel_ranks.hpp"

namespace polypath::test {
namespace {

/// Small rings and regions: they go round often.
ScratchShape small(std::uint32_t ranks) { return {ranks, 4, 4, 1024, 8 * 1024, 8 * 1024}; }

class HostKernelRows : public testing::TestWithParam<std::uint32_t> {};

TEST_P(HostKernelRows, RandomRowsOfCallsLeaveEveryByteRight) {
  Random random(GetParam());
  constexpr int kRows = random_rows(12);
  HostKernelRanks ranks(small(GetParam()));
  for (int row = 0; row < kRows; ++row) {
    std::vector<CollectiveCase> cases;
    for (int call = 0; call < 4; ++call)
      cases.push_back(random_case(random, ranks.shape(), 24 * 1024, 4));
    ASSERT_EQ("", ranks.run_row(cases, random())) << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostKernelRows, testing::Range(1U, kMaxRanks + 1));

TEST(HostKernelForms, EveryTypeAndOperatorIsExactInEveryForm) {
  Random random(7);
  HostKernelRanks ranks(small(3));
  for (int type = 0; type < 10; ++type)
    for (int reduction = 0; reduction < 5; ++reduction) {
      std::vector<CollectiveCase> cases;
      for (const KernelFamily family : kKernelFamilies)
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

TEST(HostKernelForms, CountsFromZeroToSeveralRows_AreRight) {
  Random random(8);
  HostKernelRanks ranks(small(4));
  for (const CollectiveOp op :
       {CollectiveOp::allreduce, CollectiveOp::reduce_scatter, CollectiveOp::all_gather,
        CollectiveOp::broadcast, CollectiveOp::reduce, CollectiveOp::all_to_all})
    for (const KernelFamily family : kKernelFamilies) {
      std::vector<CollectiveCase> cases;
      for (const std::uint64_t count : {0, 1, 3, 4, 5, 95, 96, 97, 119, 120, 121, 191, 193, 385}) {
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

class HostKernelTrees : public testing::TestWithParam<std::uint32_t> {};

TEST_P(HostKernelTrees, RandomRowsOfCallsAreCombinedAsTrees) {
  Random random(100 + GetParam());
  constexpr int kRows = random_rows(8);
  HostKernelRanks ranks(small(GetParam()));
  for (int row = 0; row < kRows; ++row) {
    std::vector<CollectiveCase> cases;
    for (int call = 0; call < 4; ++call) {
      CollectiveCase& what = cases.emplace_back(random_case(random, ranks.shape(), 24 * 1024, 4));
      if (!combines(what.op)) what.op = CollectiveOp::allreduce;
      if (what.placement == Placement::own_part && what.op != CollectiveOp::reduce_scatter)
        what.placement = Placement::in_place;
      what.order = SumOrder::tree;
      what.type = static_cast<DataType>(random() % 4 == 0 ? random() % 10 : 6 + random() % 4);
      what.count /= 8;  // of what was drawn for another type or operation
      take_other_family(ranks.shape(), what);
    }
    ASSERT_EQ("", ranks.run_row(cases, random())) << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostKernelTrees, testing::Range(1U, kMaxRanks + 1));

TEST(HostKernelForms, EveryOperatorIsExactAsATree) {
  Random random(17);
  for (const std::uint32_t size : {2U, 3U, 4U, 8U}) {
    HostKernelRanks ranks(small(size));
    for (const DataType type :
         {DataType::float16, DataType::bfloat16, DataType::float32, DataType::float64})
      for (int reduction = 0; reduction < 5; ++reduction) {
        std::vector<CollectiveCase> cases;
        for (const KernelFamily family : {KernelFamily::cells, KernelFamily::channels})
          for (const CollectiveOp op :
               {CollectiveOp::allreduce, CollectiveOp::reduce_scatter, CollectiveOp::reduce}) {
            CollectiveCase& what = cases.emplace_back();
            what.family = family;
            what.op = op;
            what.type = type;
            what.reduction = static_cast<Operator>(reduction);
            what.ranks = size;
            what.root = size - 1;
            what.count = 131;
            what.stages = op == CollectiveOp::allreduce ? 2 : 1;
            what.blocks = 2;
            what.order = SumOrder::tree;
          }
        ASSERT_EQ("", ranks.run_row(cases, random()));
      }
  }
}

/// What ranks have that hold equally many of these leaves each, combined by themselves.
std::vector<Bytes> held_by(std::uint32_t ranks, const CollectiveCase& all,
                           const std::vector<Bytes>& leaves) {
  CollectiveCase own = all;
  own.ranks = all.ranks / ranks;
  std::vector<Bytes> inputs;
  for (auto first = leaves.begin(); first != leaves.end(); first += own.ranks)
    inputs.push_back(combined_inputs(own, {first, first + own.ranks}, 0, all.count));
  return inputs;
}

/// The same leaves over 1, 2, 4 and 8 ranks: whether all allreduces have the bits of the first.
bool is_the_same_for_all_sizes(SumOrder order, DataType type, KernelFamily family, int stages) {
  Random random(static_cast<unsigned>(type) * 10 + static_cast<unsigned>(stages));
  CollectiveCase all;
  all.type = type;
  all.ranks = 8;
  all.count = 700;
  all.order = order;
  all.family = family;
  all.stages = stages;
  all.blocks = 2;
  std::vector<Bytes> leaves;
  for (std::uint32_t leaf = 0; leaf < all.ranks; ++leaf)
    leaves.push_back(random_input(random, all));
  const Bytes of_one = held_by(1, all, leaves).front();
  bool is_same = true;
  for (const std::uint32_t size : {2U, 4U, 8U}) {
    CollectiveCase what = all;
    what.ranks = size;
    what.inputs = held_by(size, all, leaves);
    HostKernelRanks ranks(small(size));
    EXPECT_EQ("", ranks.run_row({what}, random()));
    is_same = is_same && expected_output(what, what.inputs, 0) == of_one;
  }
  return is_same;
}

TEST(HostKernelForms, TreeHasTheSameBitsForEveryNumberOfRanks) {
  for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float16})
    for (const KernelFamily family : {KernelFamily::cells, KernelFamily::channels})
      for (const int stages : {1, 2}) {
        EXPECT_TRUE(is_the_same_for_all_sizes(SumOrder::tree, type, family, stages));
        EXPECT_FALSE(is_the_same_for_all_sizes(SumOrder::rank, type, family, stages));
      }
}

class HostKernelUneven : public testing::TestWithParam<std::uint32_t> {};

TEST_P(HostKernelUneven, RandomPartsLeaveEveryByteRight) {
  Random random(200 + GetParam());
  constexpr int kRows = random_rows(12);
  HostKernelRanks ranks(small(GetParam()));
  for (int row = 0; row < kRows; ++row) {
    std::vector<CollectiveCase> cases;
    for (int call = 0; call < 5; ++call) {
      CollectiveCase& what = cases.emplace_back(random_case(random, ranks.shape(), 24 * 1024, 4));
      if (call == 2) continue;  // among calls of other kernels
      what.op = random() % 2 == 0 ? CollectiveOp::all_gather : CollectiveOp::reduce_scatter;
      if (what.placement == Placement::in_place) what.placement = Placement::own_part;
      if (random() % 2 == 0) what.order = SumOrder::tree;
      what.count = std::min(what.count, max_by_cells(ranks.shape(), what.op, what.type, 1));
      make_uneven(random, what);
      take_other_family(ranks.shape(), what);
    }
    ASSERT_EQ("", ranks.run_row(cases, random())) << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostKernelUneven, testing::Range(1U, kMaxRanks + 1));

TEST(HostKernelForms, UnevenPartsOfOneRankAlone) {
  Random random(23);
  HostKernelRanks ranks(small(4));
  std::vector<CollectiveCase> cases;
  for (const KernelFamily family : {KernelFamily::cells, KernelFamily::channels})
    for (const CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::reduce_scatter})
      for (std::uint32_t owner = 0; owner < 4; ++owner) {
        CollectiveCase& what = cases.emplace_back();
        what.family = family;
        what.op = op;
        what.type = DataType::bfloat16;
        what.ranks = 4;
        what.count = 1001;
        what.parts.assign(4, 0);
        what.parts[owner] = what.count;
        what.blocks = 3;
      }
  ASSERT_EQ("", ranks.run_row(cases, random()));
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

TEST_P(KernelThatWaits, Timeout_NamesTheAbsentRank) {
  for (const CollectiveOp op :
       {CollectiveOp::allreduce, CollectiveOp::all_to_all, CollectiveOp::broadcast}) {
    HostKernelRanks ranks(small(3));
    EXPECT_EQ("", ranks.run_without(1, call(op), 5));
    const wait_error& status = ranks.status(0);
    EXPECT_EQ(1U, status.given_up);
    EXPECT_EQ(7U, status.kernel);
    EXPECT_EQ(wait_error::time_limit, status.reason);
    EXPECT_EQ(1U, status.waited_for_rank);
    EXPECT_LT(status.seen, status.expected);
    EXPECT_EQ(0U, ranks.status(1).given_up);
  }
}

TEST_P(KernelThatWaits, GivesUpWhenTheAbortWordIsSet) {
  HostKernelRanks ranks(small(3));
  ranks.abort_flag(0) = ranks.abort_flag(2) = 1;
  EXPECT_EQ("", ranks.run_without(1, call(CollectiveOp::allreduce), 6));
  EXPECT_EQ(wait_error::aborted, ranks.status(0).reason);
  EXPECT_EQ(wait_error::aborted, ranks.status(2).reason);
}

/// Every rank says so, with its own call and the other one.
void expect_mismatch(const std::vector<CollectiveCase>& by_rank, std::uint32_t flipped = 0) {
  HostKernelRanks ranks(small(3));
  for (int call = 0; call < 3; ++call)  // which mark it is makes no difference
    if (call < 2) {
      ASSERT_EQ("", ranks.run_row({by_rank[0]}, 20 + call));
    } else {
      EXPECT_EQ("", ranks.run_apart(by_rank, flipped, 22));
    }
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const wait_error& status = ranks.status(rank);
    EXPECT_EQ(1U, status.given_up) << "rank " << rank;
    EXPECT_EQ(wait_error::mismatch, status.reason) << "rank " << rank;
    EXPECT_TRUE(rank == 1 ? status.waited_for_rank != 1 : status.waited_for_rank == 1);
    const CollectiveArgs own_args = args_of(by_rank[rank], ranks.shape(), rank);
    const CollectiveArgs peer_args =
        args_of(by_rank[status.waited_for_rank], ranks.shape(), status.waited_for_rank);
    EXPECT_EQ(own_args.mark.what ^ (rank == 1 ? flipped : 0),
              static_cast<std::uint32_t>(status.expected));
    EXPECT_EQ(peer_args.mark.what ^ (rank == 1 ? 0 : flipped), status.seen);
    EXPECT_EQ(by_rank[rank].count, status.offset);
    EXPECT_EQ(by_rank[status.waited_for_rank].count, status.bytes);
  }
}

TEST_P(KernelThatWaits, CallsThatDiffer_EndOnAllRanks) {
  struct Other {
    const char* name;
    void (*change)(CollectiveCase&);
  };
  const std::vector<Other> others{
      {"count", [](CollectiveCase& what) { what.count = 997; }},
      {"much smaller count", [](CollectiveCase& what) { what.count = 1; }},
      {"type", [](CollectiveCase& what) { what.type = DataType::int32; }},
      {"operator", [](CollectiveCase& what) { what.reduction = Operator::max; }},
      {"root", [](CollectiveCase& what) { what.root = 2; }},
      {"operation", [](CollectiveCase& what) { what.op = CollectiveOp::reduce_scatter; }},
      {"operation without owner", [](CollectiveCase& what) { what.op = CollectiveOp::broadcast; }},
      {"stages", [](CollectiveCase& what) { what.stages = 1; }},
      {"blocks", [](CollectiveCase& what) { what.blocks = 3; }},
      {"family",
       [](CollectiveCase& what) {
         what.family =
             what.family == KernelFamily::channels ? KernelFamily::cells : KernelFamily::channels;
       }},
  };
  for (const CollectiveOp op :
       {CollectiveOp::allreduce, CollectiveOp::broadcast, CollectiveOp::reduce})
    for (const Other& other : others) {
      SCOPED_TRACE(std::string(to_string(op)) + ": " + other.name);
      std::vector<CollectiveCase> by_rank(3, call(op));
      other.change(by_rank[1]);
      if (args_of(by_rank[0], small(3), 0).mark.what ==
              args_of(by_rank[1], small(3), 0).mark.what &&
          by_rank[0].count == by_rank[1].count)
        continue;  // the change makes no other call of this operation
      expect_mismatch(by_rank);
    }
}

TEST_P(KernelThatWaits, UnlikeMarkBit_EndsTheCall) {
  for (const unsigned bit : {kMarkHowShift, 31U})
    expect_mismatch(std::vector<CollectiveCase>(3, call(CollectiveOp::allreduce)), 1U << bit);
}

TEST(HostKernelForms, HalvesAtOddElements_GoByTwoBytes) {
  CollectiveCase what;
  what.family = KernelFamily::cells;
  what.type = DataType::float16;
  what.ranks = 2;
  what.count = 301;
  what.in_shift = what.out_shift = 1;
  HostKernelRanks ranks(small(2));
  std::uint64_t single = 0;
  std::uint64_t halves = 0;
  ranks.watch_accesses([&](std::uintptr_t, std::size_t bytes, bool) {
    single += bytes == 1 ? 1 : 0;
    halves += bytes == 2 ? 1 : 0;
  });
  EXPECT_EQ("", ranks.run_row({what}, 4));
  EXPECT_EQ(0U, single);
  EXPECT_GE(halves, 2 * 2 * what.count);
}

TEST(HostKernelForms, CallWithoutElements_OnlyComparesMarks) {
  CollectiveCase what;
  what.ranks = 3;
  HostKernelRanks ranks(small(3));
  EXPECT_EQ("", ranks.run_row({what, what, what}, 9));
  expect_mismatch(std::vector<CollectiveCase>(3, what), 1U << 20);
}

/// What ranks have of a call must not depend on their numbers of blocks.
TEST(HostKernelForms, EveryNumberOfBlocks_LeavesTheSameBits) {
  Random random(29);
  HostKernelRanks ranks({3, 6, 4, 512, 8 * 1024, 8 * 1024});
  for (const KernelFamily family : kKernelFamilies)
    for (const CollectiveOp op : {CollectiveOp::allreduce, CollectiveOp::all_to_all}) {
      CollectiveCase what;
      what.family = family;
      what.op = op;
      what.ranks = 3;
      what.count = 1300;
      what.tile_bytes = 256;
      what.blocks = 6;
      for (std::uint32_t rank = 0; rank < what.ranks; ++rank)
        what.inputs.push_back(random_input(random, what, rank));
      std::vector<CollectiveCase> row;
      for (const std::vector<std::uint32_t>& blocks : std::vector<std::vector<std::uint32_t>>{
               {6, 6, 6}, {1, 1, 1}, {6, 1, 2}, {4, 6, 5}, {1, 3, 6}, {2, 4, 1}}) {
        row.push_back(what);
        row.back().rank_blocks = blocks;
      }
      ASSERT_EQ("", ranks.run_row(row, random()));
    }
}

TEST(HostKernelForms, RowsOfUnlikeBlocks_OnFullGpus) {
  Random random(31);
  HostKernelRanks a({4, 4, 4, 512, 8 * 1024, 8 * 1024});
  HostKernelRanks b({4, 4, 4, 512, 8 * 1024, 8 * 1024});
  for (int turn = 0; turn < random_rows(12); ++turn) {
    std::vector<std::vector<CollectiveCase>> rows(2);
    for (auto& row : rows)
      for (int call = 0; call < 4; ++call) {
        row.push_back(random_case(random, a.shape(), 12 * 1024, 2));
        make_blocks_unlike(random, row.back());
      }
    // Each communicator has two blocks at most: no more than the GPU runs.
    ASSERT_EQ("", HostKernelRanks::run_together({&a, &b}, rows, 4, random())) << "turn " << turn;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, KernelThatWaits, testing::ValuesIn(kKernelFamilies));

}  // namespace
}  // namespace polypath::test
