// Allreduces that use links of host memory next to a kernel, and leave them to the traffic of
// others. Ranks are threads, on a simulated node in virtual time. Every byte is compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "base/units.hpp"
#include "core/context.hpp"
#include "driver/check.hpp"
#include "driver/resources.hpp"
#include "group.hpp"
#include "schedule_calls.hpp"
#include "scripted_links.hpp"
#include "support/driver_extras.hpp"
#include "timed_calls.hpp"

namespace polypath::test {
namespace {

using testing::Each;

constexpr int kRanks = 4;
/// Until a change that must come.
constexpr int kMaxCalls = 100;
/// Calls in a row that are alike.
constexpr int kSettled = 8;
/// Times of calls vary: samples have events of their own, and threads of ranks meet by chance.
constexpr double kTolerance = 1.1;

CollectivesOptions options_with(HostLinkLoad* links) {
  CollectivesOptions options = kWithCopies;
  options.host_links = links;
  return options;
}

class LoadLevels : public testing::Test {
 protected:
  void SetUp() override {
    if (gpus_up_to(kRanks) < kRanks || !in_virtual_time()) GTEST_SKIP() << "of a simulated node";
    group_.emplace(kRanks, GroupOptions{.alter_node = [this](int, Node& node) { alter(node); }});
  }
  virtual void alter(Node& /*node*/) {}
  [[nodiscard]] static const CudaDriver& driver() { return *group_node().driver; }

  std::optional<Group> group_;
};

class ScriptedLoad : public LoadLevels {
 protected:
  void alter(Node& node) override { slow_down_gpu_links(node); }
};

/// Ranks that find load at different times, and start apart. Between the calls that follow the
/// load are others, captured ones, and calls that are refused and made again: none is counted.
TEST_F(ScriptedLoad, SkewedRanks_ChangeAtSameCall) {
  constexpr int kCalls = 32;
  constexpr std::size_t kCaptured = 9;
  Random random(20261127);
  std::vector<PlannedCall> row;
  for (int i = 0; i < kCalls; ++i) row.push_back(mixed_call(random, kRanks));
  std::vector<PlannedCall> others;
  for (int i = 0; i < kCalls / kCallsApart; ++i)
    others.push_back(planned_call(random, kRanks, {1, 2000}));
  group_->run([&](Communicator& comm) {
    Random own(static_cast<std::uint64_t>(comm.rank()));
    ScriptedLinks links(load_from(static_cast<int>(own() % kLatestFirst)));
    CollectivesOptions options = options_with(&links);
    options.retries_buffers = true;
    Collectives collectives(comm, options);
    const CallRow memory(driver(), row, comm.rank());
    const CallRow memory_of_others(driver(), others, comm.rank());
    const Stream stream(driver(), comm.context());
    std::optional<CapturedRow> graph;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 1500));
      const CollectiveCall call = memory.call(row, i);
      if (own() % 4 == 0) {
        CollectiveCall refused = call;
        refused.send = 0;
        EXPECT_THROW(collectives.run(refused, stream.get()), InvalidArgument);
      }
      if (i == kCaptured) {
        graph.emplace(driver(), stream.get(), [&] { collectives.run(call, stream.get()); });
        graph->launch(stream.get());
      } else {
        collectives.run(call, stream.get());
      }
      if (i % kCallsApart == 0) {
        collectives.run(memory_of_others.call(others, i / kCallsApart), stream.get());
        comm.exchange({}, {});
      }
    }
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.check();
    memory.expect_done(row);
    memory_of_others.expect_done(others);
    const CollectiveCounts& counts = collectives.counts();
    EXPECT_EQ(counts.mixed + counts.changed_by_load, row.size() - 1);
    EXPECT_THAT(on_all_ranks(comm, counts.mixed), Each(counts.mixed));
    EXPECT_GT(counts.mixed, 0u);
    EXPECT_GT(counts.changed_by_load, 0u);
  });
}

TEST_F(ScriptedLoad, LoadFoundByOneRank_ChangesAll) {
  Random random(2);
  std::vector<PlannedCall> row;
  for (int i = 0; i < 16; ++i) row.push_back(mixed_call(random, kRanks));
  group_->run([&](Communicator& comm) {
    const bool finds_load = comm.rank() == 2;
    ScriptedLinks links([finds_load](int look) { return finds_load && look < 3; });
    CollectivesOptions options = options_with(&links);
    Collectives collectives(comm, options);
    const CallRow memory(driver(), row, comm.rank());
    const Stream stream(driver(), comm.context());
    for (std::size_t i = 0; i < row.size(); ++i) {
      collectives.run(memory.call(row, i), stream.get());
      comm.exchange({}, {});
    }
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.check();
    memory.expect_done(row);
    EXPECT_GT(collectives.counts().changed_by_load, 0u);
    const std::uint64_t before = collectives.counts().mixed;
    collectives.run(memory.call(row, 0), stream.get());
    EXPECT_EQ(collectives.counts().mixed, before + 1) << "did not use the links again";
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.exchange({}, {});
  });
}

TEST_F(ScriptedLoad, RankZeroWithoutLoad_NoRankFollows) {
  Random random(3);
  std::vector<PlannedCall> row;
  for (int i = 0; i < 6; ++i) row.push_back(mixed_call(random, kRanks));
  group_->run([&](Communicator& comm) {
    ScriptedLinks always([](int) { return true; });
    CollectivesOptions options = options_with(comm.rank() == 0 ? nullptr : &always);
    Collectives collectives(comm, options);
    const CallRow memory(driver(), row, comm.rank());
    const Stream stream(driver(), comm.context());
    for (std::size_t i = 0; i < row.size(); ++i) collectives.run(memory.call(row, i), stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.check();
    memory.expect_done(row);
    EXPECT_EQ(collectives.counts().mixed, row.size());
    comm.exchange({}, {});
  });
}

/// A copy of this process, which its monitor knows of before anything is measured.
class OwnCopy : public ScriptedLoad, public testing::WithParamInterface<bool> {};

TEST_P(OwnCopy, CountsOnOtherStreamOnly) {
  const bool is_same_stream = GetParam();
  Random random(4);
  std::vector<PlannedCall> row;
  for (int i = 0; i < 8; ++i) row.push_back(mixed_call(random, kRanks));
  Context context(group_node(), {{"profile", "off"}, {"registry", "off"}, {"load", "known"}});
  group_->run([&](Communicator& comm) {
    const auto links = watch_host_links(context.load(), context.node(), comm.gpu());
    Collectives collectives(comm, options_with(links.get()));
    const CallRow memory(driver(), row, comm.rank());
    const Stream stream(driver(), comm.context());
    const Stream other(driver(), comm.context());
    const DeviceBytes source(driver(), kMiB);
    Bytes host(kMiB);
    if (comm.rank() == 2)
      context.load().note_copy(reinterpret_cast<CUdeviceptr>(host.data()), source.address(),
                               1024 * kMiB, is_same_stream ? stream.get() : other.get());
    for (std::size_t i = 0; i < row.size(); ++i) {
      collectives.run(memory.call(row, i), stream.get());
      comm.exchange({}, {});
    }
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.check();
    memory.expect_done(row);
    const CollectiveCounts& counts = collectives.counts();
    EXPECT_EQ(counts.mixed + counts.changed_by_load, row.size());
    if (is_same_stream)
      EXPECT_EQ(counts.changed_by_load, 0u);
    else
      EXPECT_GE(counts.changed_by_load, 4u);
    comm.exchange({}, {});
  });
}
INSTANTIATE_TEST_SUITE_P(Streams, OwnCopy, testing::Bool(), [](const auto& each) {
  return std::string(each.param ? "same" : "other");
});

/// 0 for none.
double median(std::vector<double> times) {
  if (times.empty()) return 0;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

PlannedCall timed_call() {
  Random random(7);
  PlannedCall call;
  call.what.ranks = kRanks;
  call.what.count = 16 * kMiB / sizeof(float);
  call.images = images_of(random, call.what);
  return call;
}

TEST_F(LoadLevels, ForeignTraffic_IsLeftItsLink) {
  Context context(group_node(), {{"profile", "off"}, {"registry", "off"}});
  std::optional<ForeignCopies> foreign_copies;
  group_->run([&](Communicator& comm) {
    const auto links = watch_host_links(context.load(), context.node(), comm.gpu());
    Collectives collectives(comm, options_with(links.get()));
    TimedCalls calls(comm, collectives, timed_call());
    std::uint64_t mixed = 0;
    const auto was_mixed = [&] {
      return std::exchange(mixed, collectives.counts().mixed) != collectives.counts().mixed;
    };
    const double idle_us = median(calls.times(kSettled));
    EXPECT_TRUE(was_mixed());
    EXPECT_LT(idle_us, median(calls.times(kSettled, AlgorithmOverride::kernels)));

    comm.exchange({}, {});
    if (comm.rank() == 0) foreign_copies.emplace(comm.driver(), "gpu1", "host0");
    // Calls that find out, those that are issued before all ranks know, and those that try a link
    // again which was not the one: which rank looks first is a matter of chance. In the end the
    // calls leave the link alone, and are as fast as kernels next to the traffic.
    std::vector<double> apart_us;
    std::vector<double> kernels_us;
    int count = 0;
    for (; apart_us.size() < kSettled && count < kMaxCalls; ++count) {
      const double us = calls.time();
      if (was_mixed()) {
        apart_us.clear();
        kernels_us.clear();
      } else {
        apart_us.push_back(us);
        kernels_us.push_back(calls.time(AlgorithmOverride::kernels));
      }
    }
    EXPECT_LT(count, kMaxCalls);
    EXPECT_LE(median(apart_us), kTolerance * median(kernels_us));

    comm.exchange({}, {});
    if (comm.rank() == 0) foreign_copies.reset();
    int without_links = 0;
    for (; !was_mixed() && without_links < kMaxCalls; ++without_links) calls.time();
    EXPECT_LT(without_links, kMaxCalls);
    EXPECT_LT(median(calls.times(kSettled)), kTolerance * idle_us);
    comm.exchange({}, {});
  });
}

}  // namespace
}  // namespace polypath::test
