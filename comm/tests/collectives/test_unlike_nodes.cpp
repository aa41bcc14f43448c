// Collective calls of several nodes that are not alike on all ranks: none has a wrong result
// without an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <chrono>

#include "nccl_standin.h"
#include "node_group.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Two ranks of a node and one of another make other calls than rank 0.
TEST(NodesTest, CallsDifferInNode_EndOnItsRanks) {
  NEEDS_GPUS(4);
  struct Change {
    const char* name;
    void (*change)(CollectiveCall& call);
  };
  const std::vector<Change> changes{
      // With the same parts in the node.
      {"reduce", [](CollectiveCall& call) { call.op = CollectiveOp::reduce; }},
      {"avg", [](CollectiveCall& call) { call.operation = Operator::avg; }},
      {"count", [](CollectiveCall& call) { call.count -= 4; }},
      {"type", [](CollectiveCall& call) { call.type = DataType::int32; }},
  };
  for (const Change& each : changes) {
    SCOPED_TRACE(each.name);
    CreatedGroup group("aabb", {.time_limit = std::chrono::seconds(10)});
    const auto failures = group.failures([&](NodeRank& rank, int number) {
      CallInPlace in_place(rank, 1000);
      if (number == 1 || number == 3) each.change(in_place.call);
      rank.across->run(in_place.call, in_place.stream.get());
      POLYPATH_CHECK(rank.state.local->driver(), stream_synchronize(in_place.stream.get()));
      while (!rank.state.local->aborted())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      rank.state.local->check();
    });
    for (const std::string& failure : failures)
      EXPECT_THAT(failure, HasSubstr("call 1: reduce_scatter of")) << each.name;
  }
}

/// Nodes of one rank each, so that only what goes between them can tell.
void expect_mismatch_between_nodes(bool by_nccl) {
  struct Change {
    const char* name;
    void (*change)(CollectiveCall& call);
  };
  const std::vector<Change> changes{
      {"allreduce of 1000 float32 by avg",
       [](CollectiveCall& call) { call.operation = Operator::avg; }},
      {"allreduce of 1000 int32 by sum", [](CollectiveCall& call) { call.type = DataType::int32; }},
      {"reduce of 1000 float32 by sum to rank 0",
       [](CollectiveCall& call) { call.op = CollectiveOp::reduce; }},
  };
  for (const Change& each : changes) {
    SCOPED_TRACE(each.name);
    // A message that is too long for its receiver fails as a whole.
    if (!by_nccl && &each == &changes.back()) continue;
    CreatedGroup group("ab", {.time_limit = std::chrono::seconds(10), .by_nccl = by_nccl});
    const auto failures = group.failures([&](NodeRank& rank, int number) {
      CallInPlace in_place(rank, 1000);
      if (number == 1) each.change(in_place.call);
      rank.across->run(in_place.call, in_place.stream.get());
      POLYPATH_CHECK(rank.state.local->driver(), stream_synchronize(in_place.stream.get()));
      // Nothing comes to node 1 that must not.
      while (number == 0 && !rank.state.local->aborted())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      rank.state.local->check();
    });
    EXPECT_THAT(failures[0], AllOf(HasSubstr("call 1: allreduce of 1000 float32 by sum"),
                                   HasSubstr(each.name), HasSubstr("node 1 calls")));
  }
}

TEST(NodesTest, CallsDifferBetweenNodes_EndByMessages) {
  NEEDS_GPUS(2);
  expect_mismatch_between_nodes(false);
}

TEST(NodesTest, CallsDifferBetweenNodes_EndByNccl) {
  NEEDS_GPUS(2);
  if (!group_node().simulated) GTEST_SKIP() << "node_ranks tries NCCL itself";
  nccl_standin_reset();
  expect_mismatch_between_nodes(true);
}

}  // namespace
}  // namespace polypath::test
