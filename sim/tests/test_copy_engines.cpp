// Order and waiting times at copy engines that other programs use.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "timeline.hpp"

namespace polypath::sim {
namespace {

constexpr int kLink = 0;        // of host memory: 10 GB/s, served by turns
constexpr int kOther = 1;       // 10 GB/s
constexpr double kBytes = 1e5;  // 10 us on a link alone

class CopyEnginesTest : public testing::Test {
 protected:
  static Costs costs() {
    Costs costs;
    costs.copy_start_us = 5;
    costs.copy_gap_us = 4;
    costs.copy_handover_us = 1;
    costs.event_us = 2;
    return costs;
  }

  /// Blocks of 1000 us; the next one begins 4 us after the end of one.
  static TrafficFlow traffic(int queue_blocks = 1) {
    TrafficFlow flow;
    flow.block = FlowDemand{1e7, {kLink}};
    flow.engine = kLink;
    flow.queue_blocks = queue_blocks;
    return flow;
  }

  OperationPtr copy(double issue_us, OperationPtr previous = nullptr, double bytes = kBytes,
                    int resource = kLink) {
    Operation operation;
    operation.flow = FlowDemand{bytes, {resource}};
    operation.previous = std::move(previous);
    return timeline_.issue(std::move(operation), issue_us);
  }

  OperationPtr record(double issue_us, OperationPtr previous = nullptr) {
    Operation operation;
    operation.is_delayable = true;
    operation.previous = std::move(previous);
    return timeline_.issue(std::move(operation), issue_us);
  }

  void run() {
    while (timeline_.step()) {
    }
  }

  Timeline timeline_{costs(), {10, 10}};
};

// The others' first turn begins at 0 (a block moves bytes from 1 to 1001) and ends at 1070.

TEST_F(CopyEnginesTest, Copy_WaitsForEndOfTurn) {
  timeline_.start_traffic(traffic());
  const OperationPtr a = copy(100);
  run();
  EXPECT_DOUBLE_EQ(kTurnUs + 1 + 10, a->end_us);
}

TEST_F(CopyEnginesTest, Turn_SameForAllBlocks) {
  for (const double bytes : {1e5, 1e6, 1e7, 1e8})
    for (const int queued : {1, 4}) {
      Timeline timeline(costs(), {10, 10});
      TrafficFlow flow = traffic(queued);
      flow.block.bytes = bytes;
      timeline.start_traffic(flow);
      Operation operation;
      operation.flow = FlowDemand{kBytes, {kLink}};
      const OperationPtr a = timeline.issue(std::move(operation), 100);
      while (timeline.step()) {
      }
      EXPECT_DOUBLE_EQ(kTurnUs + 1 + 10, a->end_us) << bytes << ' ' << queued;
    }
}

TEST_F(CopyEnginesTest, TurnsAlone_FollowOneAnother) {
  timeline_.start_traffic(traffic());
  timeline_.run_until(4000);
  const OperationPtr a = copy(5000);
  run();
  EXPECT_DOUBLE_EQ(5 * kTurnUs + 1 + 10, a->end_us);
}

TEST_F(CopyEnginesTest, CopyAfterCopy_WaitsForWholeTurn) {
  timeline_.start_traffic(traffic());
  const OperationPtr a = copy(100);
  run();
  const OperationPtr b = copy(a->end_us);
  run();
  EXPECT_DOUBLE_EQ(a->end_us + 3 + kTurnUs + 1 + 10, b->end_us);
  const OperationPtr c = copy(b->end_us + 200);
  run();
  EXPECT_DOUBLE_EQ(b->end_us + 3 + kTurnUs + 1 + 10, c->end_us);
}

TEST_F(CopyEnginesTest, InterruptedBlock_GoesOn) {
  const int id = timeline_.start_traffic(traffic());
  const OperationPtr a = copy(100);
  run();
  // The second block moved from 1005 to the end of the turn.
  const double end_us = a->end_us + 3 + 1 + 1000 - (kTurnUs - 1005);
  timeline_.run_until(end_us - 0.1);
  EXPECT_EQ(1U, timeline_.traffic_blocks(id));
  timeline_.run_until(end_us + 0.1);
  EXPECT_EQ(2U, timeline_.traffic_blocks(id));
}

TEST_F(CopyEnginesTest, QueuedRun_IsServedTogether) {
  timeline_.start_traffic(traffic());
  const OperationPtr a = copy(100);
  const OperationPtr b = copy(101, a);
  const OperationPtr c = copy(102, b);
  run();
  EXPECT_DOUBLE_EQ(kTurnUs + 11 + 2 * 14, c->end_us);
}

TEST_F(CopyEnginesTest, CopyIssuedLater_WaitsForNextTurn) {
  timeline_.start_traffic(traffic());
  const OperationPtr a = copy(100);  // until 1081
  const OperationPtr b = copy(1082, a);
  run();
  EXPECT_DOUBLE_EQ(1084 + kTurnUs + 1 + 10, b->end_us);
}

TEST_F(CopyEnginesTest, LongRun_EndsItsTurn) {
  timeline_.start_traffic(traffic());
  OperationPtr last;
  std::vector<OperationPtr> copies;
  for (int i = 0; i < 12; ++i) copies.push_back(last = copy(i, last, 1 << 20));
  run();
  const double copy_us = 104.8576;
  EXPECT_NEAR(kTurnUs + 1 + 8 * (copy_us + 4) + copy_us, copies[8]->end_us, 1e-6);
  const double moved = 2 * kTurnUs - copies[8]->end_us - 4;  // of the tenth
  EXPECT_NEAR(3 * kTurnUs + 1 + copy_us - moved, copies[9]->end_us, 1e-6);
  EXPECT_NEAR(copies[9]->end_us + 4 + copy_us, copies[10]->end_us, 1e-6);
}

TEST_F(CopyEnginesTest, LargeCopy_GetsHalfOfLink) {
  const double bytes = 4.0 * (64 << 20);
  TrafficFlow flow = traffic();
  flow.block.bytes = 64 << 20;
  const int id = timeline_.start_traffic(flow);
  const OperationPtr a = copy(0, nullptr, bytes);
  run();
  EXPECT_NEAR(2 * bytes / 1e4, a->end_us, kTurnUs);
  EXPECT_NEAR(4, static_cast<double>(timeline_.traffic_blocks(id)), 1);
}

TEST_F(CopyEnginesTest, OwnCopies_ShareTurn) {
  timeline_.start_traffic(traffic());
  const OperationPtr a = copy(100);
  const OperationPtr b = copy(101);
  run();
  EXPECT_DOUBLE_EQ(kTurnUs + 11, a->end_us);
  EXPECT_DOUBLE_EQ(kTurnUs + 11 + 14, b->end_us);
}

TEST_F(CopyEnginesTest, ThreePrograms_TakeTurns) {
  timeline_.start_traffic(traffic());
  timeline_.start_traffic(traffic());
  const OperationPtr a = copy(100);
  run();
  EXPECT_DOUBLE_EQ(2 * kTurnUs + 11, a->end_us);
}

// Events with timing around a copy that waits: begin, copy, end.

TEST_F(CopyEnginesTest, RecordBeforeCopy_HidesWait) {
  timeline_.start_traffic(traffic());
  const OperationPtr early = record(97);
  const OperationPtr begin = record(98, early);
  const OperationPtr a = copy(100, begin);
  const OperationPtr b = copy(101, a);
  const OperationPtr end = record(102, b);
  run();
  EXPECT_DOUBLE_EQ(kTurnUs + 11 + 14, end->timestamp_us);
  EXPECT_DOUBLE_EQ(5 + 10 + 14, end->timestamp_us - begin->timestamp_us);  // as on an idle link
  EXPECT_DOUBLE_EQ(5 + 10 + 14, end->timestamp_us - early->timestamp_us);
  EXPECT_DOUBLE_EQ(98, begin->end_us);  // the event itself is not late
}

TEST_F(CopyEnginesTest, RecordOnOtherStream_ShowsWait) {
  timeline_.start_traffic(traffic());
  const OperationPtr other = record(99);
  const OperationPtr begin = record(100);
  const OperationPtr a = copy(101, begin);
  run();
  EXPECT_DOUBLE_EQ(99, other->timestamp_us);
  EXPECT_DOUBLE_EQ(15, a->end_us - begin->timestamp_us);
}

TEST_F(CopyEnginesTest, RecordBehindCopy_IsNotMoved) {
  timeline_.start_traffic(traffic());
  const OperationPtr a = copy(100);
  const OperationPtr end = record(101, a);
  timeline_.run_until(1150);  // it is the others' turn since 1084
  const OperationPtr begin = record(1150, end);
  const OperationPtr b = copy(1151, begin);
  run();
  EXPECT_DOUBLE_EQ(kTurnUs + 11, end->timestamp_us);
  EXPECT_DOUBLE_EQ(15, b->end_us - begin->timestamp_us);
}

TEST_F(CopyEnginesTest, RecordOfEarlierTurn_ShowsWait) {
  timeline_.start_traffic(traffic());
  const OperationPtr begin = record(1000);
  const OperationPtr a = copy(1100, begin);
  run();
  EXPECT_DOUBLE_EQ(1000, begin->timestamp_us);
  EXPECT_DOUBLE_EQ(2 * kTurnUs + 11, a->end_us);
}

TEST_F(CopyEnginesTest, RecordInOwnTurn_IsNotMoved) {
  timeline_.start_traffic(traffic());
  copy(100, nullptr, 10 * kBytes);  // from 1071 to 1171
  timeline_.run_until(1100);
  const OperationPtr begin = record(1100);
  const OperationPtr b = copy(1101, begin);
  run();
  EXPECT_DOUBLE_EQ(1100, begin->timestamp_us);
  EXPECT_DOUBLE_EQ(kTurnUs + 101 + 14, b->end_us);
}

TEST_F(CopyEnginesTest, RecordBeforeCopyOnIdleLink_IsNotMoved) {
  const int id = timeline_.start_traffic(traffic());
  timeline_.stop_traffic(id);
  timeline_.run_until(2000);
  const OperationPtr begin = record(2000);
  copy(2001, begin);
  run();
  EXPECT_DOUBLE_EQ(2000, begin->timestamp_us);
}

TEST_F(CopyEnginesTest, OtherLink_DoesNotWait) {
  timeline_.start_traffic(traffic(4));
  const OperationPtr a = copy(100, nullptr, kBytes, kOther);
  run();
  EXPECT_DOUBLE_EQ(115, a->end_us);
}

TEST_F(CopyEnginesTest, LinkWithoutEngine_IsShared) {
  TrafficFlow flow = traffic();
  flow.engine = -1;
  timeline_.start_traffic(flow);
  const OperationPtr a = copy(100);
  run();
  EXPECT_DOUBLE_EQ(100 + 5 + 20, a->end_us);  // half of the rate
}

TEST_F(CopyEnginesTest, OffPhase_DoesNotWait) {
  TrafficFlow flow = traffic();
  flow.on_us = 500;
  flow.off_us = 1500;
  timeline_.start_traffic(flow);  // a block until 1001; the next one begins at 2000
  const OperationPtr a = copy(1100);
  const OperationPtr b = copy(2100);
  run();
  EXPECT_DOUBLE_EQ(1115, a->end_us);
  EXPECT_DOUBLE_EQ(2000 + 1001 + 3 + 1 + 10, b->end_us);
}

TEST_F(CopyEnginesTest, Block_WaitsForOwnTurn) {
  TrafficFlow flow = traffic();
  flow.begin_us = 50;
  const int id = timeline_.start_traffic(flow);
  const OperationPtr a = copy(0, nullptr, 1e6);  // 5 to 105
  const OperationPtr b = copy(70);
  const OperationPtr c = copy(120);
  run();
  EXPECT_DOUBLE_EQ(105, a->end_us);
  EXPECT_DOUBLE_EQ(105 + 14, b->end_us);
  EXPECT_DOUBLE_EQ(b->end_us + 3 + kTurnUs + 11, c->end_us);
  EXPECT_EQ(1U, timeline_.traffic_blocks(id));
}

TEST_F(CopyEnginesTest, TrafficStart_SeesRunningCopy) {
  const OperationPtr a = copy(0, nullptr, 2e7);  // of 2000 us
  timeline_.run_until(50);
  timeline_.start_traffic(traffic());
  run();
  EXPECT_DOUBLE_EQ(5 + 2000 + kTurnUs + 1, a->end_us);
}

TEST_F(CopyEnginesTest, Stop_EndsAfterQueuedBlocks) {
  const int id = timeline_.start_traffic(traffic(2));
  timeline_.run_until(100);
  timeline_.stop_traffic(id);
  timeline_.run_until(5000);
  EXPECT_EQ(2U, timeline_.traffic_blocks(id));
  const OperationPtr a = copy(5000);
  run();
  EXPECT_DOUBLE_EQ(5015, a->end_us);
}

TEST_F(CopyEnginesTest, CopyOverTwoEngines_WaitsForBoth) {
  timeline_.start_traffic(traffic());
  TrafficFlow other = traffic(2);
  other.begin_us = 300;
  other.block.resources = {kOther};
  other.engine = kOther;
  timeline_.start_traffic(other);
  Operation both;
  both.flow = FlowDemand{kBytes, {kLink, kOther}};
  const OperationPtr a = timeline_.issue(std::move(both), 100);
  run();
  EXPECT_DOUBLE_EQ(300 + kTurnUs + 1 + 10, a->end_us);
}

/// Any mix of links, of traffic that goes on and off, and of copies of all sizes.
TEST_F(CopyEnginesTest, RandomPrograms_Complete) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&random](int least, int most) {
      return std::uniform_int_distribution(least, most)(random);
    };
    Timeline timeline(costs(), {10, 10, 10});
    std::vector<OperationPtr> copies;
    double bytes = 0;
    double now = 0;
    for (int i = 0; i < 30; ++i) {
      now += draw(0, 1) * draw(0, 3000);
      timeline.run_until(now);
      if (const int link = draw(-4, 2); link >= 0) {
        TrafficFlow flow = traffic(draw(1, 4));
        flow.block.bytes = std::pow(10, draw(4, 8));
        flow.block.resources = {link};
        flow.engine = link;
        flow.begin_us = now + draw(0, 1) * draw(0, 500);
        flow.on_us = flow.off_us = draw(0, 1) * draw(1, 3000);
        const int id = timeline.start_traffic(flow);
        if (draw(0, 2) == 0) timeline.stop_traffic(draw(1, id));
      }
      Operation operation;
      operation.flow = FlowDemand{std::pow(10, draw(3, 7)), {draw(0, 2)}};
      if (draw(0, 3) == 0) operation.flow->resources = {0, draw(1, 2)};
      if (!copies.empty() && draw(0, 1) == 0) operation.previous = copies.back();
      bytes += operation.flow->bytes;
      copies.push_back(timeline.issue(std::move(operation), now));
    }
    for (int steps = 0; timeline.step(); ++steps) ASSERT_LT(steps, 100'000) << seed;
    for (const OperationPtr& copy : copies) {
      ASSERT_TRUE(copy->done) << seed;
      EXPECT_GE(copy->end_us, copy->issue_us + 5 + copy->flow->bytes / 1e4 - 1e-6) << seed;
    }
    EXPECT_LT(timeline.now_us(), now + 40 * (bytes / 1e4 + 30 * kTurnUs)) << seed;
  }
}

TEST_F(CopyEnginesTest, TrafficAlone_IsNothingToWaitFor) {
  timeline_.start_traffic(traffic());
  EXPECT_FALSE(timeline_.step());
  timeline_.run_until(10500);
  EXPECT_DOUBLE_EQ(10500, timeline_.now_us());
  EXPECT_FALSE(timeline_.step());
}

TEST_F(CopyEnginesTest, EndedTraffic_ChangesNothing) {
  const int id = timeline_.start_traffic(traffic());
  timeline_.stop_traffic(id);
  timeline_.run_until(2000);
  const OperationPtr a = copy(2000);
  const OperationPtr b = copy(2001);  // shares the link, as without traffic
  run();
  Timeline alone(costs(), {10, 10});
  const auto issue = [&alone](double us) {
    Operation operation;
    operation.flow = FlowDemand{kBytes, {kLink}};
    return alone.issue(std::move(operation), us);
  };
  const OperationPtr c = issue(2000);
  const OperationPtr d = issue(2001);
  while (alone.step()) {
  }
  EXPECT_EQ(c->end_us, a->end_us);
  EXPECT_EQ(d->end_us, b->end_us);
}

}  // namespace
}  // namespace polypath::sim
