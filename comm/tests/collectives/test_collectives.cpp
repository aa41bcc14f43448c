// Collectives as programs call them, over ranks that are threads: random calls, streams, captures,
// several communicators, and what is refused.
#include "collectives/collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <chrono>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "call_rows.hpp"
#include "driver/check.hpp"
#include "group.hpp"
#include "schedule_calls.hpp"
#include "support/gate.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

/// Four, or as many as there are GPUs, or as POLYPATH_TEST_RANKS says.
int ranks() {
  const char* const count = std::getenv("POLYPATH_TEST_RANKS");
  const int most = count == nullptr ? 4 : std::atoi(count);
  return std::min(most, static_cast<int>(group_node().node.gpus.size()));
}

/// So that the scratch is small.
constexpr CollectivesOptions kFewBlocks{.max_blocks = 16, .check = false, .direct_results = true};

/// At random, for as many ranks as there are.
PlannedCall planned(Random& random, const ByteRange& bytes) {
  return planned_call(random, ranks(), bytes);
}

using Row = std::vector<PlannedCall>;

/// A row to capture, whose buffers are reset before each launch, and one to call next to it.
std::pair<Row, Row> rows_beside(Random& random, int calls, const ByteRange& bytes) {
  std::pair<Row, Row> rows;
  for (int i = 0; i < calls; ++i) {
    PlannedCall& captured = rows.first.emplace_back(planned(random, bytes));
    captured.what.placement = Placement::apart;
    captured.images = images_of(random, captured.what);
    rows.second.push_back(planned(random, bytes));
  }
  return rows;
}

void issue(Collectives& collectives, const CallRow& row, const Row& calls, CUstream stream) {
  for (std::size_t i = 0; i < calls.size(); ++i) collectives.run(row.call(calls, i), stream);
}

class CollectivesTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      if (ranks() < 2) GTEST_SKIP() << "needs two GPUs";
    } catch (const NoDevice& error) {
      GTEST_SKIP() << error.what();
    }
    group_.emplace(ranks());
  }
  [[nodiscard]] static const CudaDriver& driver() { return *group_node().driver; }

  std::optional<Group> group_;
};

// Their kernels are loaded by a call that waits for those that run, and keeps the other ranks of
// the process out of the driver meanwhile, among them the one whose signal a stream waits for.
TEST_F(CollectivesTest, CreationWhileStreamWaits_DoesNotHang) {
  Group group(2, {.time_limit = std::chrono::seconds(30)});
  const auto failures = group.failures([](Communicator& comm) {
    const SymmetricMemory words = comm.alloc(8);
    const Stream stream(comm.driver(), comm.context());
    if (comm.rank() == 0) {
      comm.wait_signal({words, 0, 1}, stream.get());
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      comm.signal(0, {words, 0, 1}, stream.get());
    }
    const Collectives collectives(comm, kFewBlocks);
    POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
    comm.check();
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
}

TEST_F(CollectivesTest, RowsOfRandomCallsOnSeveralStreams) {
  Random random(20261122);
  std::vector<std::vector<PlannedCall>> rows(random_rows(6));
  for (auto& row : rows)
    for (int i = 0; i < 4; ++i)
      row.push_back(planned(random, i == 0 ? ByteRange{5 << 20, 6 << 20} : ByteRange{0, 20000}));
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    Random own(static_cast<std::uint64_t>(comm.rank()));
    std::vector<Stream> streams;
    for (int i = 0; i < 3; ++i) streams.emplace_back(driver(), comm.context());
    std::uint64_t calls = 0;
    for (const std::vector<PlannedCall>& row : rows) {
      const CallRow rank_row(driver(), row, comm.rank());
      for (std::size_t i = 0; i < row.size(); ++i) {
        collectives.run(rank_row.call(row, i), streams[own() % streams.size()].get());
        calls += row[i].what.count > 0 ? 1 : 0;
      }
      for (const Stream& stream : streams)
        POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      rank_row.expect_done(row);
    }
    const CollectiveCounts& counts = collectives.counts();
    EXPECT_EQ(all_calls(counts), calls);
    EXPECT_GT(counts.cells, 0u);
    EXPECT_GT(counts.lines + counts.channels + counts.host_trees, 0u);
    comm.exchange({}, {});
  });
}

TEST_F(CollectivesTest, BlockLimit_HoldsUntilLifted) {
  Random random(23);
  const std::vector<PlannedCall> row{planned(random, {5 << 20, 6 << 20}),
                                     planned(random, {5 << 20, 6 << 20})};
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const Stream stream(driver(), comm.context());
    const CallRow rank_row(driver(), row, comm.rank());
    const auto blocks = [&] {
      return collectives.plan(rank_row.call(row, 0)).kernel.value().blocks;
    };
    const int free = blocks();
    EXPECT_GT(free, 2);
    collectives.limit_blocks(2);
    EXPECT_EQ(2, blocks());
    collectives.run(rank_row.call(row, 0), stream.get());
    collectives.limit_blocks(0);
    EXPECT_EQ(free, blocks());
    collectives.run(rank_row.call(row, 1), stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    rank_row.expect_done(row);
    comm.exchange({}, {});
  });
}

TEST_F(CollectivesTest, MoreShapesThanAreKept_OnePlanIsDropped) {
  Random random(31);
  const auto a = planned(random, {4 << 10, 8 << 10});
  const auto b = planned(random, {9 << 10, 12 << 10});
  const auto c = planned(random, {13 << 10, 16 << 10});
  const auto d = planned(random, {17 << 10, 20 << 10});
  const std::vector<PlannedCall> row{a, b, c, a, d, a, c, d, b};
  // The fourth shape takes the place of the second, which was used least recently.
  const std::vector<std::uint64_t> plans{1, 2, 3, 3, 4, 4, 4, 4, 5};
  group_->run([&](Communicator& comm) {
    CollectivesOptions options = kFewBlocks;
    options.max_plans = 3;
    Collectives collectives(comm, options);
    const Stream stream(driver(), comm.context());
    const CallRow rank_row(driver(), row, comm.rank());
    for (std::size_t i = 0; i < row.size(); ++i) {
      collectives.run(rank_row.call(row, i), stream.get());
      EXPECT_EQ(collectives.counts().plans, plans[i]) << "call " << i;
    }
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    rank_row.expect_done(row);
    comm.exchange({}, {});
  });
}

TEST_F(CollectivesTest, SeveralCommunicatorsAtOnce) {
  Random random(7);
  std::vector<std::vector<PlannedCall>> rows(2);
  for (auto& row : rows)
    for (int i = 0; i < 6; ++i) row.push_back(planned(random, {0, 30000}));
  group_->run([&](Communicator& comm) {
    const auto other = comm.split(0, comm.rank());
    Collectives first(comm, kFewBlocks);
    Collectives second(*other, kFewBlocks);
    const Stream stream_a(driver(), comm.context());
    const Stream stream_b(driver(), comm.context());
    const CallRow rank_row(driver(), rows[0], comm.rank());
    const CallRow more(driver(), rows[1], comm.rank());
    // Half of the ranks issue those of the one first, half those of the other.
    for (int turn = 0; turn < 2; ++turn) {
      const bool use_first = (turn + comm.rank()) % 2 == 0;
      for (std::size_t i = 0; i < rows[0].size(); ++i)
        use_first ? first.run(rank_row.call(rows[0], i), stream_a.get())
                  : second.run(more.call(rows[1], i), stream_b.get());
    }
    for (const Stream* stream : {&stream_a, &stream_b})
      POLYPATH_CHECK(driver(), stream_synchronize(stream->get()));
    rank_row.expect_done(rows[0]);
    more.expect_done(rows[1]);
    comm.exchange({}, {});
  });
}

/// Half of the GPU: the calls of two communicators want more blocks than there are.
constexpr CollectivesOptions kHalfGpu{.max_blocks = 64, .reserved_sms = 1 << 16};

// All ranks but the first have calls of one communicator in flight when they issue those of another:
// these have fewer blocks there. On the first rank it is the other way round.
TEST_F(CollectivesTest, CallsInFlight_ShareBlocks) {
  Random random(45);
  std::vector<Row> rows(3);
  for (Row& row : rows) row.push_back(planned(random, {6 << 20, 7 << 20}));
  group_->run([&](Communicator& comm) {
    const auto second_comm = comm.split(0, comm.rank());
    const auto third_comm = comm.split(0, -comm.rank());
    Collectives first(comm, kHalfGpu);
    Collectives second(*second_comm, kHalfGpu);
    Collectives third(*third_comm, kHalfGpu);
    const Stream stream_a(driver(), comm.context());
    const Stream stream_b(driver(), comm.context());
    const CallRow row_a(driver(), rows[0], comm.rank());
    const CallRow row_b(driver(), rows[1], comm.rank());
    const CallRow row_c(driver(), rows[2], third_comm->rank());
    if (comm.rank() == 0) comm.exchange({}, {});
    const auto issue_first = [&] { issue(first, row_a, rows[0], stream_a.get()); };
    const auto issue_second = [&] { issue(second, row_b, rows[1], stream_b.get()); };
    if (comm.rank() == 0) {
      issue_second();
      issue_first();
    } else {
      issue_first();
      issue_second();
      comm.exchange({}, {});
      EXPECT_EQ(1U, second.counts().fewer_blocks);
    }
    for (const Stream* each : {&stream_a, &stream_b})
      POLYPATH_CHECK(driver(), stream_synchronize(each->get()));
    row_a.expect_done(rows[0]);
    row_b.expect_done(rows[1]);
    // Alone, the third has all that the first had.
    issue(third, row_c, rows[2], stream_a.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream_a.get()));
    row_c.expect_done(rows[2]);
    EXPECT_EQ(0U, third.counts().fewer_blocks);
    EXPECT_EQ(first.plan(row_a.call(rows[0], 0)).kernel.value().blocks,
              third.plan(row_a.call(rows[0], 0)).kernel.value().blocks);
    comm.exchange({}, {});
  });
}

// A graph may be launched at any time, so no other communicator gets its blocks.
TEST_F(CollectivesTest, CapturedCalls_KeepTheirBlocks) {
  if (driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no capture";
  Random random(46);
  const auto [captured, eager] = rows_beside(random, 1, {6 << 20, 7 << 20});
  group_->run([&](Communicator& comm) {
    const auto other_comm = comm.split(0, comm.rank());
    Collectives first(comm, kHalfGpu);
    Collectives other(*other_comm, kHalfGpu);
    const Stream stream_a(driver(), comm.context());
    const Stream stream_b(driver(), comm.context());
    const CallRow captured_row(driver(), captured, comm.rank());
    // It has blocks when the capture asks for them, and no call in flight.
    const CallRow earlier(driver(), eager, comm.rank());
    issue(other, earlier, eager, stream_b.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream_b.get()));
    EXPECT_EQ(0U, other.counts().fewer_blocks);
    const CapturedRow graph(driver(), stream_a.get(),
                            [&] { issue(first, captured_row, captured, stream_a.get()); });
    EXPECT_EQ(0U, first.counts().fewer_blocks);
    for (int turn = 0; turn < 2; ++turn) {
      captured_row.reset(captured);
      const CallRow eager_row(driver(), eager, comm.rank());
      comm.exchange({}, {});
      if (comm.rank() % 2 == 0) graph.launch(stream_a.get());
      issue(other, eager_row, eager, stream_b.get());
      if (comm.rank() % 2 != 0) graph.launch(stream_a.get());
      for (const Stream* each : {&stream_a, &stream_b})
        POLYPATH_CHECK(driver(), stream_synchronize(each->get()));
      captured_row.expect_done(captured);
      eager_row.expect_done(eager);
    }
    EXPECT_EQ(2U, other.counts().fewer_blocks);
    comm.exchange({}, {});
  });
}

TEST_F(CollectivesTest, CapturedRow_ReplaysAmongOtherCalls) {
  if (driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no capture";
  Random random(11);
  const auto [captured, eager] = rows_beside(random, 3, {0, 20000});
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const Stream stream(driver(), comm.context());
    const CallRow rank_row(driver(), captured, comm.rank());
    const CapturedRow graph(driver(), stream.get(),
                            [&] { issue(collectives, rank_row, captured, stream.get()); });
    for (int turn = 0; turn < 3; ++turn) {
      rank_row.reset(captured);
      const CallRow between(driver(), eager, comm.rank());
      graph.launch(stream.get());
      issue(collectives, between, eager, stream.get());
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      rank_row.expect_done(captured);
      between.expect_done(eager);
    }
    comm.exchange({}, {});
  });
}

// Each rank holds another one of the two streams, so that without an order that is the host's, half
// of the ranks would run the graph first, and half the calls.
TEST_F(CollectivesTest, GraphsAndCalls_RunInHostOrder) {
  if (driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no capture";
  Random random(13);
  const auto [captured, eager] = rows_beside(random, 2, {100, 20000});
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const Stream ours(driver(), comm.context());
    const Stream others(driver(), comm.context());
    const CallRow rank_row(driver(), captured, comm.rank());
    const CapturedRow graph(driver(), ours.get(),
                            [&] { issue(collectives, rank_row, captured, ours.get()); });
    for (int turn = 0; turn < 4; ++turn) {
      rank_row.reset(captured);
      const CallRow between(driver(), eager, comm.rank());
      comm.exchange({}, {});
      {
        Gate gate(driver(), comm.context());
        gate.hold((turn / 2 + comm.rank()) % 2 == 0 ? ours.get() : others.get(), comm.context());
        if (turn % 2 == 0) graph.launch(ours.get());
        issue(collectives, between, eager, others.get());
        if (turn % 2 == 1) graph.launch(ours.get());
        comm.exchange({}, {});
      }
      for (const Stream* stream : {&ours, &others})
        POLYPATH_CHECK(driver(), stream_synchronize(stream->get()));
      rank_row.expect_done(captured);
      between.expect_done(eager);
    }
    comm.exchange({}, {});
  });
}

TEST_F(CollectivesTest, InterleavedCaptures_KeepCallOrder) {
  if (driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no capture";
  Random random(14);
  const Row first = rows_beside(random, 3, {100, 20000}).first;
  const Row second = rows_beside(random, 3, {100, 20000}).first;
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const Stream stream(driver(), comm.context());
    const Stream side(driver(), comm.context());
    const Stream other(driver(), comm.context());
    const Event fork(driver(), comm.context(), CU_EVENT_DISABLE_TIMING);
    const Event join(driver(), comm.context(), CU_EVENT_DISABLE_TIMING);
    const CallRow rank_row(driver(), first, comm.rank());
    const CallRow other_row(driver(), second, comm.rank());
    // The calls of one graph are on two streams, and calls of another capture lie between them.
    const auto graphs = CapturedRow::two(driver(), {stream.get(), other.get()}, [&] {
      POLYPATH_CHECK(driver(), event_record(fork.get(), stream.get()));
      POLYPATH_CHECK(driver(), stream_wait_event(side.get(), fork.get(), 0));
      for (std::size_t i = 0; i < first.size(); ++i) {
        collectives.run(rank_row.call(first, i), (i % 2 == 0 ? stream : side).get());
        collectives.run(other_row.call(second, i), other.get());
      }
      POLYPATH_CHECK(driver(), event_record(join.get(), side.get()));
      POLYPATH_CHECK(driver(), stream_wait_event(stream.get(), join.get(), 0));
    });
    for (int turn = 0; turn < 4; ++turn) {
      rank_row.reset(first);
      other_row.reset(second);
      comm.exchange({}, {});
      {
        Gate gate(driver(), comm.context());
        gate.hold((turn / 2 + comm.rank()) % 2 == 0 ? stream.get() : other.get(), comm.context());
        if (turn % 2 == 0) graphs[0]->launch(stream.get());
        graphs[1]->launch(other.get());
        if (turn % 2 == 1) graphs[0]->launch(stream.get());
        comm.exchange({}, {});
      }
      for (const Stream* each : {&stream, &other})
        POLYPATH_CHECK(driver(), stream_synchronize(each->get()));
      rank_row.expect_done(first);
      other_row.expect_done(second);
    }
    comm.exchange({}, {});
  });
}

TEST_F(CollectivesTest, CheckOption_ReportsUnlikeArguments) {
  group_->run([&](Communicator& comm) {
    CollectivesOptions options = kFewBlocks;
    options.check = true;
    Collectives collectives(comm, options);
    const DeviceBytes device(driver(), 65536);
    const CUdeviceptr ours = device.address();
    const CollectiveCall right{
        .op = CollectiveOp::broadcast, .count = 1000, .send = ours, .recv = ours};
    const auto refused = [&](const CollectiveCall& call, const std::string& why) {
      try {
        collectives.run(comm.rank() == 1 ? call : right, nullptr);
        ADD_FAILURE() << "not refused: " << why;
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr(why));
      }
    };
    CollectiveCall other = right;
    other.count = 100;
    refused(other, "the count of rank 1 (100) is not that of rank 0 (1000)");
    other = right;
    other.type = DataType::int32;
    refused(other, "the type of rank 1 (int32) is not that of rank 0 (float32)");
    other = right;
    other.root = 1;
    refused(other, "the root of rank 1 (1) is not that of rank 0 (0)");
    other = right;
    other.op = CollectiveOp::allreduce;
    refused(other, "the operation of rank 1 (allreduce) is not that of rank 0 (broadcast)");
    const auto sums = [&](Operator operation) {
      CollectiveCall call = right;
      call.op = CollectiveOp::allreduce;
      call.operation = operation;
      return call;
    };
    try {
      collectives.run(sums(comm.rank() == 1 ? Operator::max : Operator::sum), nullptr);
      ADD_FAILURE() << "not refused: the operator";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("the operator of rank 1 (max) is not that of rank 0 (sum)"));
    }
    EXPECT_EQ(collectives.counts().cells + collectives.counts().channels, 0u);
    // It stays usable.
    collectives.run(sums(Operator::sum), nullptr);
    POLYPATH_CHECK(driver(), stream_synchronize(nullptr));
    comm.check();
    EXPECT_EQ(collectives.counts().cells + collectives.counts().channels, 1u);
    comm.exchange({}, {});
  });
}

TEST_F(CollectivesTest, AbsentRank_EndsOthersWithReason) {
  if (in_virtual_time()) GTEST_SKIP() << "virtual time stands still while all wait";
  // Two ranks, so that no other one can be late on a busy machine.
  Group pair(2);
  const std::vector<std::string> failures = pair.failures([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const DeviceBytes device(driver(), 4096);
    const Stream stream(driver(), comm.context());
    if (comm.rank() == 0) {
      comm.set_time_limit(std::chrono::milliseconds(500));
      collectives.run({.count = 1024, .send = device.address(), .recv = device.address()},
                      stream.get());
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    }
    // The watchdog learns of it from the kernel; then all ranks do.
    while (!comm.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm.check();
  });
  EXPECT_THAT(failures, Each(HasSubstr("waited for rank 1")));
}

}  // namespace
}  // namespace polypath::test
