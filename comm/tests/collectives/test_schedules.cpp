// Collectives that run by copies and sums, over ranks that are threads: rows of random calls by
// each algorithm, which bits they give, and by which algorithm they went.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "collectives/plan/schedule_stages.hpp"
#include "collectives/plan/schedule_time.hpp"
#include "group.hpp"
#include "schedule_calls.hpp"
#include "support/driver_extras.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kRanks = 4;
class SchedulesTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      if (group_node().node.gpus.size() < kRanks) GTEST_SKIP() << "needs four GPUs";
    } catch (const NoDevice& error) {
      GTEST_SKIP() << error.what();
    }
    group_.emplace(kRanks);
  }
  [[nodiscard]] static const CudaDriver& driver() { return *group_node().driver; }

  std::optional<Group> group_;
};

class SchedulesBy : public SchedulesTest, public testing::WithParamInterface<AlgorithmOverride> {};

TEST_P(SchedulesBy, RowsOfRandomCallsFromSkewedStarts) {
  const AlgorithmOverride choice = GetParam();
  Random random(20261123 + static_cast<std::uint64_t>(choice));
  std::vector<std::vector<PlannedCall>> rows(random_rows(4));
  for (auto& row : rows)
    for (int i = 0; i < 4; ++i)
      row.push_back(call_for(random, kRanks, choice, i == 0 ? 3 << 20 : 60000));
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kWithCopies);
    Random own(static_cast<std::uint64_t>(comm.rank()));
    std::vector<Stream> streams;
    for (int i = 0; i < 2; ++i) streams.emplace_back(driver(), comm.context());
    std::uint64_t calls = 0;
    for (const std::vector<PlannedCall>& row : rows) {
      const CallRow rank_row(driver(), row, comm.rank());
      std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
      for (std::size_t i = 0; i < row.size(); ++i)
        collectives.run(rank_row.call(row, i), streams[own() % streams.size()].get(), choice);
      calls += calls_of(row);
      for (const Stream& stream : streams)
        POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      rank_row.expect_done(row);
    }
    EXPECT_EQ(calls_by(collectives.counts(), choice), calls);
    comm.exchange({}, {});
  });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, SchedulesBy,
                         testing::Values(AlgorithmOverride::pairwise,
                                         AlgorithmOverride::hierarchical,
                                         AlgorithmOverride::published, AlgorithmOverride::ring,
                                         AlgorithmOverride::host, AlgorithmOverride::host_trees),
                         [](const auto& param_info) {
                           std::string name(to_string(param_info.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_F(SchedulesTest, EveryTypeAndOperatorInRankOrder) {
  Random random(5);
  std::vector<PlannedCall> row;
  for (int type = 0; type < 10; ++type)
    for (int reduction = 0; reduction < 5; ++reduction) {
      PlannedCall call;
      call.what.type = static_cast<DataType>(type);
      call.what.reduction = static_cast<Operator>(reduction);
      call.what.ranks = kRanks;
      call.what.count = 5000 + random() % 100;
      call.what.in_shift = static_cast<std::uint32_t>(random() % 3);
      call.images = images_of(random, call.what);
      row.push_back(std::move(call));
    }
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kWithCopies);
    const Stream stream(driver(), comm.context());
    for (const AlgorithmOverride choice :
         {AlgorithmOverride::hierarchical, AlgorithmOverride::pairwise, AlgorithmOverride::host}) {
      const CallRow rank_row(driver(), row, comm.rank());
      for (std::size_t i = 0; i < row.size(); ++i)
        collectives.run(rank_row.call(row, i), stream.get(), choice);
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      rank_row.expect_done(row);
      EXPECT_EQ(calls_by(collectives.counts(), choice), row.size());
    }
    comm.exchange({}, {});
  });
}

TEST_P(SchedulesBy, FloatsAreCombinedAsATree) {
  const AlgorithmOverride choice = GetParam();
  Random random(31 + static_cast<std::uint64_t>(choice));
  std::vector<PlannedCall> row;
  while (row.size() < 6) {
    PlannedCall call = call_for(random, kRanks, choice, row.empty() ? 3 << 20 : 60000);
    if (!combines(call.what.op)) continue;
    if (!depends_on_order(call.what.type) && row.size() > 1) continue;
    call.what.order = SumOrder::tree;
    call.images = images_of(random, call.what);
    row.push_back(std::move(call));
  }
  group_->run([&](Communicator& comm) {
    CollectivesOptions options = kWithCopies;
    options.order = SumOrder::tree;
    Collectives collectives(comm, options);
    const Stream stream(driver(), comm.context());
    const CallRow rank_row(driver(), row, comm.rank());
    for (std::size_t i = 0; i < row.size(); ++i)
      collectives.run(rank_row.call(row, i), stream.get(), choice);
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.check();
    rank_row.expect_done(row);
    EXPECT_EQ(calls_by(collectives.counts(), choice), calls_of(row));
    comm.exchange({}, {});
  });
}

TEST_F(SchedulesTest, RingIsInNoPlanOfATree) {
  group_->run([&](Communicator& comm) {
    CollectivesOptions options = kWithCopies;
    options.order = SumOrder::tree;
    const Collectives collectives(comm, options);
    const CollectiveCall call{.count = 16 << 20};
    EXPECT_EQ(collectives.plan(call).algorithm, Algorithm::hierarchical);
    EXPECT_EQ(collectives.plan(call).order, "((r0 + r1) + (r2 + r3))");
    const CollectivePlan ring = collectives.plan(call, AlgorithmOverride::ring);
    EXPECT_THAT(ring.order, HasSubstr("slice s of the ring"));
    EXPECT_FALSE(ring.rank_order);
    comm.exchange({}, {});
  });
}

TEST_F(SchedulesTest, ChosenAlgorithmIsRun) {
  Random random(6);
  std::vector<PlannedCall> row(1);
  row.front().what.ranks = kRanks;
  row.front().what.count = 4 << 20;
  row.front().images = images_of(random, row.front().what);
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, {.max_blocks = 4, .check = false, .copies = false});
    const Stream stream(driver(), comm.context());
    const CallRow rank_row(driver(), row, comm.rank());
    const CollectiveCall call = rank_row.call(row, 0);
    collectives.run(call, stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.check();
    rank_row.expect_done(row);
    EXPECT_EQ(collectives.plan(call).algorithm, Algorithm::hierarchical);
    EXPECT_EQ(collectives.counts().hierarchical, 1u);
    comm.exchange({}, {});
  });
}

/// Counted in all ranks of this process: a first call looks the costs of copies up.
TEST_F(SchedulesTest, NewCount_TimesNoSchedule) {
  Random random(8);
  std::vector<PlannedCall> row(2);
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i].what.ranks = kRanks;
    row[i].what.count = i == 0 ? 300001 : 400003;
    row[i].images = images_of(random, row[i].what);
  }
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, {.max_blocks = 4, .check = false, .copies = false});
    const Stream stream(driver(), comm.context());
    const CallRow rank_row(driver(), row, comm.rank());
    comm.exchange({}, {});  // all are made
    const std::uint64_t before = schedule_time_runs();
    comm.exchange({}, {});  // all have read it
    for (std::size_t i = 0; i < row.size(); ++i)
      collectives.run(rank_row.call(row, i), stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.check();
    rank_row.expect_done(row);
    comm.exchange({}, {});
    EXPECT_EQ(schedule_time_runs(), before);
    EXPECT_EQ(collectives.counts().plans, row.size());
  });
}

/// Islands of two ranks, and of two next to one that leads both lanes: what crosses each link is
/// what the plan says, and the marks of the call, 16 bytes from each rank to each other.
TEST_F(SchedulesTest, EachLinkCarriesWhatThePlanSays) {
  auto* const link_bytes =
      driver_function<std::uint64_t(const char*, const char*)>(driver(), "polypath_sim_link_bytes");
  if (link_bytes == nullptr) GTEST_SKIP() << "nobody counts them here";
  const Node& node = group_node().node;
  const auto counts = [&] {
    std::vector<double> bytes;
    for (const Link& link : node.links)
      bytes.push_back(static_cast<double>(
          link_bytes(to_string(link.from).c_str(), to_string(link.to).c_str())));
    return bytes;
  };
  for (const int ranks : {3, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    Random random(8);
    std::vector<PlannedCall> row(1);
    row.front().what.ranks = static_cast<std::uint32_t>(ranks);
    row.front().what.count = 1 << 20;
    row.front().images = images_of(random, row.front().what);
    std::vector<double> before;
    std::vector<double> after;
    CollectivePlan plan;
    Group group(ranks);
    group.run([&](Communicator& comm) {
      Collectives collectives(comm, kWithCopies);
      const Stream stream(driver(), comm.context());
      const CallRow rank_row(driver(), row, comm.rank());
      comm.exchange({}, {});
      if (comm.rank() == 0) before = counts();
      comm.exchange({}, {});
      const CollectiveCall call = rank_row.call(row, 0);
      collectives.run(call, stream.get(), AlgorithmOverride::hierarchical);
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      comm.exchange({}, {});
      if (comm.rank() == 0) after = counts();
      comm.exchange({}, {});
      rank_row.expect_done(row);
      EXPECT_EQ(collectives.counts().hierarchical, 1u);
      if (comm.rank() == 0) plan = collectives.plan(call, AlgorithmOverride::hierarchical);
    });
    EXPECT_EQ(plan.islands.size(), 2u);
    EXPECT_EQ(plan.lanes, 2);
    std::vector<double> expected(node.links.size(), 0);
    for (const LinkBytes& stage : stage_bytes(node, make_collective_schedule(node, plan)))
      for (std::size_t i = 0; i < stage.size(); ++i) expected[i] += stage[i];
    const double marks = 16.0 * ranks * (ranks - 1);
    for (std::size_t i = 0; i < node.links.size(); ++i) {
      const std::string link = to_string(node.links[i].from) + " to " + to_string(node.links[i].to);
      EXPECT_GE(after[i] - before[i], expected[i]) << link;
      EXPECT_LE(after[i] - before[i], expected[i] + marks) << link;
    }
  }
}

TEST_P(SchedulesBy, GraphsRunAmongOtherCalls) {
  if (driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no capture";
  const std::size_t turns = random_rows(5);
  group_->run([&](Communicator& comm) {
    GraphGame game(comm, GetParam());
    for (std::size_t turn = 0; turn < turns; ++turn) EXPECT_EQ(game.turn(), "");
    game.expect_counts();
    comm.exchange({}, {});
  });
}

TEST_F(SchedulesTest, MissingGraphLaunch_EndsOthers) {
  if (in_virtual_time()) GTEST_SKIP() << "virtual time stands still while all wait";
  if (driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no capture";
  Group group(kRanks, {});
  const std::vector<std::string> failures = group.failures([&](Communicator& comm) {
    Collectives collectives(comm, kWithCopies);
    const DeviceBytes device(driver(), 1 << 20);
    const Stream stream(driver(), comm.context());
    comm.set_time_limit(std::chrono::milliseconds(1500));  // of the graph
    const CapturedRow graph(driver(), stream.get(), [&] {
      collectives.run({.count = 1 << 18, .send = device.address(), .recv = device.address()},
                      stream.get(), AlgorithmOverride::hierarchical);
    });
    graph.launch(stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.check();
    if (comm.rank() != 1) graph.launch(stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    while (!comm.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm.check();
  });
  EXPECT_THAT(failures, Each(HasSubstr("waited")));
}

TEST_F(SchedulesTest, AbsentRank_EndsOthers) {
  if (in_virtual_time()) GTEST_SKIP() << "virtual time stands still while all wait";
  Group group(kRanks, {});
  const std::vector<std::string> failures = group.failures([&](Communicator& comm) {
    Collectives collectives(comm, kWithCopies);
    const DeviceBytes device(driver(), 1 << 20);
    const Stream stream(driver(), comm.context());
    comm.set_time_limit(std::chrono::milliseconds(500));  // what came before may take its time
    if (comm.rank() != 1)
      collectives.run({.count = 1 << 18, .send = device.address(), .recv = device.address()},
                      stream.get(), AlgorithmOverride::hierarchical);
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    while (!comm.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm.check();
  });
  EXPECT_THAT(failures, Each(HasSubstr("waited")));
}

TEST_F(SchedulesTest, ImpossibleCall_IsRefusedOnAllRanks) {
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kWithCopies);
    const DeviceBytes device(driver(), 1 << 20);
    const CollectiveCall call{.op = CollectiveOp::reduce_scatter,
                              .count = 1024,
                              .send = device.address(),
                              .recv = device.address()};
    EXPECT_THROW(collectives.run(call, nullptr, AlgorithmOverride::ring), InvalidArgument);
    EXPECT_EQ(collectives.counts().ring, 0u);
    comm.check();
    // In place, but not in the rank's own part. That depends on its buffers, so no rank goes on.
    const auto refused = [&](const CollectiveCall& in_place) {
      const auto other = comm.split(0, comm.rank());
      Collectives split_collectives(*other, kWithCopies);
      comm.exchange({}, {});
      EXPECT_THROW(split_collectives.run(in_place, nullptr, AlgorithmOverride::pairwise), Error);
      EXPECT_TRUE(other->aborted());
      EXPECT_EQ(split_collectives.counts().pairwise, 0u);
      comm.exchange({}, {});
    };
    CollectiveCall in_place = call;
    in_place.recv = device.address() + (comm.rank() == 0 ? 4096 : 0);
    refused(in_place);
    in_place.op = CollectiveOp::all_to_all;
    in_place.recv = device.address();
    refused(in_place);
  });
}

}  // namespace
}  // namespace polypath::test
