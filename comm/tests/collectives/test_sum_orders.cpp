// Sums as a balanced binary tree over the ranks, as programs call them: every bit, in all ways in which
// a call can run, and the same bits for every number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "driver/check.hpp"
#include "group.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr CollectivesOptions kTree{.max_blocks = 16, .check = false, .order = SumOrder::tree};

/// A random call that combines floats as a tree.
PlannedCall tree_call(Random& random, int ranks, const ByteRange& bytes) {
  PlannedCall call;
  do {
    call = planned_call(random, ranks, bytes);
  } while (!combines(call.what.op) || !depends_on_order(call.what.type));
  call.what.order = SumOrder::tree;
  call.images = images_of(random, call.what);
  return call;
}

/// One call of each rank, to its end.
void run_row(Collectives& collectives, const std::vector<PlannedCall>& row) {
  Communicator& comm = collectives.communicator();
  const Stream stream(comm.driver(), comm.context());
  const CallRow rank_row(comm.driver(), row, comm.rank());
  for (std::size_t i = 0; i < row.size(); ++i) collectives.run(rank_row.call(row, i), stream.get());
  POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
  comm.check();
  rank_row.expect_done(row);
}

TEST(SumOrders, TreesOfRandomCalls) {
  NEEDS_GPUS(2);
  Random random(20261127);
  for (int size = 2; size <= gpus_up_to(4); ++size) {
    std::vector<PlannedCall> row;
    for (int i = 0; i < 8; ++i)
      row.push_back(
          tree_call(random, size, i == 0 ? ByteRange{3 << 20, 5 << 20} : ByteRange{0, 20000}));
    Group group(size);
    group.run([&](Communicator& comm) {
      Collectives collectives(comm, kTree);
      run_row(collectives, row);
      EXPECT_EQ(all_calls(collectives.counts()), calls_of(row));
      EXPECT_GT(collectives.counts().cells, 0u);
      comm.exchange({}, {});
    });
  }
}

TEST(SumOrders, TreeIsCaptured) {
  NEEDS_GPUS(2);
  const int ranks = gpus_up_to(4);
  if (group_node().driver->stream_begin_capture == nullptr) GTEST_SKIP() << "no capture";
  Random random(5);
  std::vector<PlannedCall> row{tree_call(random, ranks, {1000, 20000})};
  row.front().what.placement = Placement::apart;
  row.front().images = images_of(random, row.front().what);
  Group group(ranks);
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kTree);
    const Stream stream(comm.driver(), comm.context());
    const CallRow rank_row(comm.driver(), row, comm.rank());
    const CapturedRow graph(comm.driver(), stream.get(),
                            [&] { collectives.run(rank_row.call(row, 0), stream.get()); });
    for (int turn = 0; turn < 2; ++turn) {
      rank_row.reset(row);
      graph.launch(stream.get());
      POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
      rank_row.expect_done(row);
    }
    comm.exchange({}, {});
  });
}

/// An allreduce of ranks that hold equally many of these leaves each.
PlannedCall call_of_leaves(CollectiveCase what, const std::vector<Bytes>& leaves, int size) {
  Random random(1);
  CollectiveCase own = what;
  own.ranks = static_cast<std::uint32_t>(leaves.size()) / static_cast<unsigned>(size);
  for (auto first = leaves.begin(); first != leaves.end(); first += own.ranks)
    what.inputs.push_back(combined_inputs(own, {first, first + own.ranks}, 0, what.count));
  what.ranks = static_cast<std::uint32_t>(size);
  PlannedCall call{what, {}};
  call.images = images_of(random, call.what);
  return call;
}

TEST(SumOrders, EveryNumberOfRanks_HasTheBitsOfTheTree) {
  for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float16}) {
    Random random(static_cast<unsigned>(type));
    CollectiveCase what;
    what.type = type;
    what.ranks = 8;
    what.count = 5001;
    what.order = SumOrder::tree;
    std::vector<Bytes> leaves;
    for (int leaf = 0; leaf < 8; ++leaf) leaves.push_back(random_input(random, what));
    const Bytes whole = combined_inputs(what, leaves, 0, what.count);
    for (const int size : {1, 2, 4, 8}) {
      if (gpus_up_to(size) < size) continue;
      const std::vector<PlannedCall> row{call_of_leaves(what, leaves, size)};
      EXPECT_EQ(expected_output(row.front().what, row.front().what.inputs, 0), whole);
      Group group(size);
      group.run([&](Communicator& comm) {
        Collectives collectives(comm, kTree);
        run_row(collectives, row);
        comm.exchange({}, {});
      });
    }
  }
}

/// What a plan says of the order is what the kernels do.
TEST(SumOrders, PlanNamesTheTree) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(3));
  group.run([&](Communicator& comm) {
    const Collectives collectives(comm, kTree);
    const CollectivePlan plan = collectives.plan({.count = 1000});
    const bool are_three = comm.size() == 3;
    EXPECT_EQ(plan.order, are_three ? "((r0 + r1) + r2)" : "(r0 + r1)");
    EXPECT_FALSE(plan.rank_order);
    EXPECT_EQ(collectives.plan({.type = DataType::int32, .count = 1000}).order,
              are_three ? "r0, r1, r2" : "r0, r1");
    comm.exchange({}, {});
  });
}

}  // namespace
}  // namespace polypath::test
