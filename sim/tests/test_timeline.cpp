// When operations run: costs, order, values waited for.
#include <gtest/gtest.h>

#include "timeline.hpp"

namespace polypath::sim {
namespace {

class TimelineTest : public testing::Test {
 protected:
  static Costs costs() {
    Costs costs;
    costs.copy_start_us = 5;
    costs.copy_gap_us = 2;
    costs.copy_handover_us = 0;
    costs.event_us = 3;
    return costs;
  }

  /// 10 us long when it is alone on the resource.
  static Operation copy(int resource = 0) {
    Operation operation;
    operation.flow = FlowDemand{1e5, {resource}, 1e9};
    return operation;
  }

  /// A value that a stream writes, 3 us long.
  static Operation value() {
    Operation operation;
    operation.takes_us = 3;
    return operation;
  }

  /// Ends as soon as it begins.
  static Operation kernel() {
    Operation operation;
    operation.kernel_on = 0;
    operation.may_complete = [] { return true; };
    return operation;
  }

  static Operation on(Operation operation, OperationPtr previous,
                      std::vector<OperationPtr> after = {}) {
    operation.previous = std::move(previous);
    operation.after = std::move(after);
    return operation;
  }

  void run() {
    while (timeline_.step()) {
    }
  }

  Timeline timeline_{costs(), {10, 10}};
};

TEST_F(TimelineTest, CopyOnIdleStream_PaysItsStart) {
  const OperationPtr a = timeline_.issue(copy(), 100);
  run();
  EXPECT_DOUBLE_EQ(115, a->end_us);
}

TEST_F(TimelineTest, CopyAfterCopy_PaysTheGap) {
  const OperationPtr a = timeline_.issue(copy(), 0);
  const OperationPtr b = timeline_.issue(on(copy(), a), 1);
  run();
  EXPECT_DOUBLE_EQ(15, a->end_us);
  EXPECT_DOUBLE_EQ(27, b->end_us);
}

TEST_F(TimelineTest, CopyAfterValue_PaysValueAndGap) {
  const OperationPtr a = timeline_.issue(copy(), 0);
  const OperationPtr v = timeline_.issue(on(value(), a), 1);
  const OperationPtr b = timeline_.issue(on(copy(), v), 2);
  run();
  EXPECT_DOUBLE_EQ(18, v->end_us);
  EXPECT_DOUBLE_EQ(30, b->end_us);
}

TEST_F(TimelineTest, CopyAfterFirstValue_PaysValueAndStart) {
  const OperationPtr v = timeline_.issue(value(), 1);
  const OperationPtr b = timeline_.issue(on(copy(), v), 2);
  run();
  EXPECT_DOUBLE_EQ(4, v->end_us);
  EXPECT_DOUBLE_EQ(19, b->end_us);
}

TEST_F(TimelineTest, KernelBetweenCopies_PaysTwoEvents) {
  const OperationPtr a = timeline_.issue(copy(), 0);
  const OperationPtr k = timeline_.issue(on(kernel(), a), 1);
  const OperationPtr record = timeline_.issue(on({}, k), 2);
  const OperationPtr b = timeline_.issue(on(copy(), record), 3);
  const OperationPtr c = timeline_.issue(on(copy(), b), 4);
  run();
  EXPECT_DOUBLE_EQ(18, k->end_us);
  EXPECT_DOUBLE_EQ(18, record->end_us);
  EXPECT_DOUBLE_EQ(36, b->end_us);  // 18 + 3 + 5 + 10
  EXPECT_DOUBLE_EQ(48, c->end_us);  // the gap alone
}

TEST_F(TimelineTest, CopyLongAfterKernel_PaysItsStart) {
  const OperationPtr k = timeline_.issue(kernel(), 0);
  const OperationPtr record = timeline_.issue(on({}, k), 100);
  const OperationPtr a = timeline_.issue(on(copy(), record), 100);
  run();
  EXPECT_DOUBLE_EQ(115, a->end_us);
}

TEST_F(TimelineTest, CopyIssuedLate_PaysItsStart) {
  const OperationPtr a = timeline_.issue(copy(), 0);
  const OperationPtr b = timeline_.issue(on(copy(), a), 14);
  run();
  EXPECT_DOUBLE_EQ(29, b->end_us);  // 14 + 5 + 10, later than 15 + 2 + 10
}

TEST_F(TimelineTest, OtherStreamDependency_PaysEventAndStart) {
  const OperationPtr a = timeline_.issue(copy(0), 0);
  const OperationPtr wait = timeline_.issue(on({}, nullptr, {a}), 1);
  const OperationPtr b = timeline_.issue(on(copy(1), wait), 2);
  run();
  EXPECT_DOUBLE_EQ(18, wait->end_us);
  EXPECT_DOUBLE_EQ(33, b->end_us);
}

TEST_F(TimelineTest, OldDependency_CostsNothing) {
  const OperationPtr a = timeline_.issue(copy(0), 0);
  const OperationPtr b = timeline_.issue(copy(1), 20);  // runs 25 to 35
  const OperationPtr wait = timeline_.issue(on({}, b, {a}), 21);
  const OperationPtr c = timeline_.issue(on(copy(1), wait), 22);
  run();
  EXPECT_DOUBLE_EQ(35, b->end_us);
  EXPECT_DOUBLE_EQ(47, c->end_us);  // the gap alone
}

TEST_F(TimelineTest, EffectsHappenAtCompletionInOrder) {
  std::vector<int> order;
  const auto noted = [&order](Operation operation, int number) {
    operation.effect = [&order, number] { order.push_back(number); };
    return operation;
  };
  const OperationPtr a = timeline_.issue(noted(copy(0), 1), 0);
  timeline_.issue(noted(copy(1), 2), 0);
  timeline_.issue(noted(on({}, a), 3), 0);
  timeline_.run_until(14.9);
  EXPECT_TRUE(order.empty());
  timeline_.run_until(15);
  EXPECT_EQ((std::vector{1, 2, 3}), order);
}

TEST_F(TimelineTest, NothingHappensAfterTheTimeAskedFor) {
  const OperationPtr a = timeline_.issue(copy(), 0);
  timeline_.run_until(14);
  EXPECT_FALSE(a->done);
  EXPECT_DOUBLE_EQ(14, timeline_.now_us());
}

TEST_F(TimelineTest, OperationWaitsForValue) {
  bool value = false;
  Operation wait;
  wait.may_complete = [&value] { return value; };
  const OperationPtr a = timeline_.issue(std::move(wait), 1);
  const OperationPtr b = timeline_.issue(on(copy(), a), 2);
  run();
  EXPECT_FALSE(a->done);
  EXPECT_TRUE(timeline_.has_waiting());
  value = true;
  timeline_.poll(50);
  run();
  EXPECT_DOUBLE_EQ(50, a->end_us);
  EXPECT_DOUBLE_EQ(65, b->end_us);
}

TEST_F(TimelineTest, CopySatisfiesWait) {
  bool value = false;
  Operation wait;
  wait.may_complete = [&value] { return value; };
  const OperationPtr waiting = timeline_.issue(std::move(wait), 0);
  Operation writer = copy();
  writer.effect = [&value] { value = true; };
  timeline_.issue(std::move(writer), 0);
  run();
  EXPECT_DOUBLE_EQ(15, waiting->end_us);
}

}  // namespace
}  // namespace polypath::sim
