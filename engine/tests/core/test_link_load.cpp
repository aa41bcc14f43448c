// The load of links, by a clock that the test has: what known copies occupy, and what samples and
// probes say of a measured link.
#include <gtest/gtest.h>

#include "core/link_load.hpp"

namespace polypath::test {
namespace {

constexpr std::uint64_t kUs = 1'000;
constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kNow = 1'000 * kMs;

/// Two GPUs with an NVLink each way, and two host memories that both reach.
Node two_gpus() {
  Node node;
  node.gpus.resize(2);
  node.hosts.resize(2);
  const auto add = [&](MemoryId from, MemoryId to, double gbps) {
    node.links.push_back(
        {.from = from, .to = to, .type = LinkType::pcie, .gbps = gbps, .ports = {}});
  };
  add(MemoryId::gpu(0), MemoryId::gpu(1), 100);
  add(MemoryId::gpu(1), MemoryId::gpu(0), 100);
  for (const int gpu : {0, 1}) {
    for (const int host : {0, 1}) {
      add(MemoryId::gpu(gpu), MemoryId::host(host), 50);
      add(MemoryId::host(host), MemoryId::gpu(gpu), 50);
    }
  }
  return node;
}

TEST(OccupiedUntil, AddsCopiesUp) {
  OccupiedUntil link;
  EXPECT_EQ(link.left_ns(kNow), 0u);
  link.add(kNow, 30 * kUs);
  link.add(kNow + 10 * kUs, 30 * kUs);
  EXPECT_EQ(link.left_ns(kNow + 10 * kUs), 50 * kUs);
  EXPECT_EQ(link.left_ns(kNow + 60 * kUs), 0u);
  link.add(kNow + kMs, 5 * kUs);
  EXPECT_EQ(link.left_ns(kNow + kMs), 5 * kUs) << "an idle link begins anew";
}

TEST(OccupiedUntil, NeverReachesFar) {
  OccupiedUntil link;
  for (int i = 0; i < 100; ++i) link.add(kNow, 500 * kMs);
  EXPECT_EQ(link.left_ns(kNow), OccupiedUntil::kLongestNs);
}

TEST(OccupiedUntil, ClockJumpsBack_IsFree) {
  OccupiedUntil link;
  link.add(100 * kNow, 10 * kUs);
  EXPECT_EQ(link.left_ns(kNow), 0u);
  link.add(kNow, 7 * kUs);
  EXPECT_EQ(link.left_ns(kNow), 7 * kUs);
}

/// What a probe takes on the idle link, as the model says.
constexpr double kModelUs = 10;

class MeasuredLinkTest : public testing::Test {
 protected:
  /// Probes of the idle link.
  void learn() {
    link_.suspect(now_);
    probe(11.0);
    EXPECT_TRUE(probe(11.0));
  }
  /// One probe that takes `us`, when it is due.
  bool probe(std::optional<double> us) {
    if (!link_.is_due(now_, true)) now_ = link_.next_probe_ns();
    EXPECT_TRUE(link_.is_due(now_, true));
    link_.probe_began();
    EXPECT_FALSE(link_.is_due(now_ + 10'000 * kMs, true)) << "one at a time";
    now_ += 20 * kUs;
    return link_.probe_ended(now_, us);
  }

  std::uint64_t now_ = kNow;
  MeasuredLink link_{kModelUs};
};

TEST_F(MeasuredLinkTest, Suspect_IsLoadedUntilTwoQuickProbes) {
  EXPECT_FALSE(link_.is_loaded());
  EXPECT_TRUE(link_.suspect(now_));
  EXPECT_FALSE(link_.suspect(now_));
  EXPECT_TRUE(link_.is_loaded());
  EXPECT_FALSE(probe(600.0));
  EXPECT_NEAR(link_.wait_us(), 590, 30);
  EXPECT_FALSE(probe(11.0));
  EXPECT_TRUE(link_.is_loaded());
  EXPECT_TRUE(probe(12.0));
  EXPECT_FALSE(link_.is_loaded());
  EXPECT_EQ(link_.wait_us(), 0);
}

TEST_F(MeasuredLinkTest, ProbesAtGrowingIntervals) {
  link_.suspect(now_);
  std::vector<std::uint64_t> pauses;
  for (int i = 0; i < 7; ++i) {
    probe(600.0);
    pauses.push_back((link_.next_probe_ns() - now_) / kMs);
  }
  EXPECT_EQ(pauses, (std::vector<std::uint64_t>{1, 2, 4, 8, 16, 20, 20}));
}

TEST_F(MeasuredLinkTest, UnusedSuspect_IsNotProbed) {
  link_.suspect(now_);
  EXPECT_TRUE(link_.is_due(now_, false)) << "an alarm is looked into at once";
  probe(600.0);
  EXPECT_FALSE(link_.is_due(now_ + 1000 * kMs, false));
  EXPECT_TRUE(link_.is_due(now_ + 1000 * kMs, true));
}

TEST_F(MeasuredLinkTest, SingleQuickProbe_KeepsItLoaded) {
  link_.suspect(now_);
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(probe(11.0));
    EXPECT_FALSE(probe(600.0));
  }
  EXPECT_TRUE(link_.is_loaded());
}

TEST_F(MeasuredLinkTest, FalseAlarm_RaisesFactor) {
  EXPECT_EQ(link_.factor(now_), 1);
  for (int i = 0; i < 8; ++i) {
    link_.suspect(now_);
    probe(11.0);
    EXPECT_TRUE(probe(11.0));
  }
  EXPECT_EQ(link_.factor(now_), MeasuredLink::kLargestFactor);
  EXPECT_EQ(link_.factor(now_ + MeasuredLink::kForgetNs), MeasuredLink::kLargestFactor / 2);
  EXPECT_EQ(link_.factor(now_ + 100 * MeasuredLink::kForgetNs), 1);
}

TEST_F(MeasuredLinkTest, TrueAlarm_LeavesFactor) {
  link_.suspect(now_);
  probe(600.0);
  probe(11.0);
  EXPECT_TRUE(probe(11.0));
  EXPECT_EQ(link_.factor(now_), 1);
}

TEST_F(MeasuredLinkTest, UnsureProbe_IsRepeatedAtOnce) {
  learn();
  link_.suspect(now_);
  EXPECT_FALSE(probe(20.0));
  EXPECT_EQ(link_.next_probe_ns(), now_);
  EXPECT_TRUE(link_.is_due(now_, false)) << "whether it is wanted or not";
  probe(11.0);
  EXPECT_TRUE(probe(11.0));
}

TEST_F(MeasuredLinkTest, UnsureProbesOnly_AreSlow) {
  learn();
  link_.suspect(now_);
  for (int i = 0; i < MeasuredLink::kUnsureProbes; ++i) EXPECT_FALSE(probe(20.0));
  EXPECT_EQ(link_.wait_us(), 0) << "none has said anything";
  EXPECT_FALSE(probe(20.0));
  EXPECT_GT(link_.wait_us(), 0);
  EXPECT_FALSE(link_.is_due(now_, true)) << "a pause, as after any slow probe";
}

TEST_F(MeasuredLinkTest, SlowProbe_IsRememberedForASecond) {
  EXPECT_FALSE(link_.was_loaded_lately(now_));
  link_.suspect(now_);
  EXPECT_FALSE(link_.was_loaded_lately(now_)) << "an alarm alone";
  probe(600.0);
  const std::uint64_t confirmed = now_;
  probe(11.0);
  EXPECT_TRUE(probe(11.0));
  EXPECT_TRUE(link_.was_loaded_lately(now_));
  EXPECT_FALSE(link_.was_loaded_lately(confirmed + MeasuredLink::kLatelyNs));
}

TEST_F(MeasuredLinkTest, FailedProbe_KeepsItLoaded) {
  link_.suspect(now_);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(probe(std::nullopt));
  EXPECT_TRUE(link_.is_loaded());
  probe(11.0);
  EXPECT_TRUE(probe(11.0)) << "a later probe may succeed";
}

TEST_F(MeasuredLinkTest, ImpossibleProbe_IsFree) {
  link_.suspect(now_);
  link_.probe_began();
  EXPECT_TRUE(link_.probe_impossible(now_));
  EXPECT_FALSE(link_.is_loaded());
  EXPECT_EQ(link_.factor(now_), 2);
}

TEST_F(MeasuredLinkTest, SlowerThanTheModel_LearnsIdleTime) {
  // A link whose idle probe takes twice and a half what the model says.
  link_.suspect(now_);
  probe(25.0);
  probe(25.0);
  link_.suspect(now_);
  probe(25.0);
  EXPECT_TRUE(probe(25.0));
}

TEST_F(MeasuredLinkTest, FirstProbesMeetTraffic_AreNotIdle) {
  link_.suspect(now_);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(probe(600.0));
  EXPECT_TRUE(link_.is_loaded());
}

TEST_F(MeasuredLinkTest, ClockJumpsBack_ProbesAnyway) {
  link_.suspect(now_);
  probe(600.0);
  now_ -= 900 * kMs;
  EXPECT_TRUE(link_.is_due(now_, true));
  EXPECT_GE(link_.factor(now_), 1);
}

TEST_F(MeasuredLinkTest, OwnLegsOnIt_ProbeWaits) {
  EXPECT_FALSE(link_.postpone(now_, 100 * kUs)) << "nothing to probe";
  link_.suspect(now_);
  EXPECT_FALSE(link_.postpone(now_, 0));
  EXPECT_TRUE(link_.postpone(now_, 100 * kUs));
  EXPECT_EQ(link_.next_probe_ns(), now_ + 100 * kUs);
  EXPECT_FALSE(link_.is_due(now_ + 99 * kUs, true));
  EXPECT_FALSE(link_.postpone(now_ + MeasuredLink::kLongestDrainNs + 1, kMs)) << "not for ever";
  EXPECT_FALSE(link_.postpone(now_ - 1, kMs)) << "a clock that jumped back";
  probe(600.0);
  EXPECT_FALSE(link_.postpone(now_, 100 * kUs)) << "only the first one";
}

TEST_F(MeasuredLinkTest, NeverProbed_IsSuspectOnce) {
  EXPECT_TRUE(link_.suspect_unless_probed(now_));
  probe(11.0);
  EXPECT_TRUE(probe(11.0));
  EXPECT_EQ(link_.factor(now_), 1) << "no alarm";
  EXPECT_FALSE(link_.suspect_unless_probed(now_));
}

TEST(LinkTable, HostLinksOfAGpu_ShareSlot) {
  const Node node = two_gpus();
  const LinkTable table(node);
  EXPECT_EQ(table.slots(), 6);
  const auto slot = [&](MemoryId from, MemoryId to) {
    return table.slot_of(*node.find_link(from, to));
  };
  EXPECT_EQ(slot(MemoryId::gpu(0), MemoryId::host(0)), slot(MemoryId::gpu(0), MemoryId::host(1)));
  EXPECT_NE(slot(MemoryId::gpu(0), MemoryId::host(0)), slot(MemoryId::host(0), MemoryId::gpu(0)));
  EXPECT_NE(slot(MemoryId::gpu(0), MemoryId::gpu(1)), slot(MemoryId::gpu(1), MemoryId::gpu(0)));
  EXPECT_EQ(table.host_slot(1, true), slot(MemoryId::gpu(1), MemoryId::host(1)));
  EXPECT_EQ(table.host_slot(1, false), slot(MemoryId::host(0), MemoryId::gpu(1)));
  EXPECT_EQ(table.host_slot(2, true), -1);
}

TEST(LinkTable, OwnCopies_LoadTheirSlotAlone) {
  LinkTable table(two_gpus());
  const int slot = table.host_slot(0, true);
  table.add_copy(slot, kNow, 100 * kUs, 5);
  const Tolerance allowed{20 * kUs, 20 * kUs};
  const LinkState state = table.state(slot, kNow, allowed, {7}, {});
  EXPECT_EQ(state.source, LoadSource::own_copies);
  EXPECT_DOUBLE_EQ(state.wait_us, 100);
  EXPECT_EQ(table.state(slot, kNow + 81 * kUs, allowed, {7}, {}).source, LoadSource::none);
  for (int other = 0; other < table.slots(); ++other) {
    if (other != slot) {
      EXPECT_EQ(table.state(other, kNow, allowed, {7}, {}).source, LoadSource::none);
    }
  }
}

TEST(LinkTable, CopiesInARow_OccupyUntilTheNext) {
  LinkTable table(two_gpus());
  const int slot = table.host_slot(0, true);
  const auto source = [&](std::uint64_t now) { return table.state(slot, now, {}, {7}, {}).source; };
  // Each takes 103 us, 3 more than predicted, and is queued when the one before the last has ended.
  table.add_copy(slot, kNow, 100 * kUs, 5);
  EXPECT_EQ(source(kNow + 101 * kUs), LoadSource::none) << "a single copy ends when it ends";
  std::uint64_t now = kNow;
  for (int i = 0; i < 100; ++i, now += 103 * kUs) {
    table.add_copy(slot, now, 100 * kUs, 5);
    if (i > 0) {
      EXPECT_EQ(source(now + 102 * kUs), LoadSource::own_copies) << i;
    }
  }
  EXPECT_EQ(source(now + 50 * kUs), LoadSource::none) << "the row has ended";
  table.add_copy(slot, now + 300 * kUs, 100 * kUs, 5);
  EXPECT_EQ(source(now + 401 * kUs), LoadSource::none) << "which follows nothing";
}

/// However long the thread that issues is halted.
TEST(LinkTable, OwnTraffic_LastsAsLongAsItsIssue) {
  LinkTable table(two_gpus());
  const int slot = table.host_slot(0, true);
  const std::uint64_t late = kNow + 1000 * kUs;
  const auto has_others = [&](std::uint64_t since) { return table.has_others(slot, 7, since); };
  table.begin_issue(slot);
  table.add_own(slot, kNow, 100 * kUs, 5);
  EXPECT_TRUE(has_others(late));
  table.begin_issue(slot);
  table.end_issue(slot);
  EXPECT_TRUE(has_others(late)) << "one of two";
  table.extend_own(slot, late, 100 * kUs, 5);
  table.end_issue(slot);
  EXPECT_TRUE(has_others(late + 99 * kUs));
  EXPECT_FALSE(has_others(late + 101 * kUs));
}

/// What other processes are told reaches as far as what this one plans by.
TEST(LinkTable, CopiesInSequence_AreToldWithTheirGrace) {
  LinkTable table(two_gpus());
  const int slot = table.host_slot(0, true);
  table.add_copy(slot, kNow, 100 * kUs, 5);
  EXPECT_EQ(table.direct_end_ns(slot), kNow + 100 * kUs);
  table.add_copy(slot, kNow, 100 * kUs, 5);
  EXPECT_EQ(table.direct_end_ns(slot), kNow + 250 * kUs);
}

TEST(LinkTable, CopiesOfTheSameStream_DoNotCount) {
  LinkTable table(two_gpus());
  const int slot = table.host_slot(0, true);
  table.add_copy(slot, kNow, 100 * kUs, 5);
  EXPECT_EQ(table.state(slot, kNow, {}, {5}, {}).source, LoadSource::none);
  table.add_copy(slot, kNow, 100 * kUs, 6);
  EXPECT_EQ(table.state(slot, kNow, {}, {5}, {}).source, LoadSource::own_copies);
}

TEST(LinkTable, OwnStagedLegs_DoNotCount) {
  LinkTable table(two_gpus());
  table.add_staged(0, kNow, 100 * kUs);
  EXPECT_EQ(table.state(0, kNow, {}, {}, {}).source, LoadSource::none);
  EXPECT_EQ(table.busy_ns(0), 100 * kUs);
}

TEST(LinkTable, OwnTraffic_IsNoLoad) {
  LinkTable table(two_gpus());
  table.add_own(0, kNow, 100 * kUs, 5);
  EXPECT_EQ(table.state(0, kNow, {}, {}, {}).source, LoadSource::none);
  EXPECT_EQ(table.own(0).left_ns(kNow), 100 * kUs);
}

TEST(LinkTable, OwnTrafficOfOneStream_HasNoOthers) {
  LinkTable table(two_gpus());
  EXPECT_FALSE(table.has_others(0, 5, kNow));
  for (const std::uint64_t at : {kNow, kNow + 10 * kUs, kNow + kMs}) {
    table.add_own(0, at, 100 * kUs, 5);
    EXPECT_FALSE(table.has_others(0, 5, at));
    table.extend_own(0, at + 20 * kUs, 100 * kUs, 5);
    EXPECT_FALSE(table.has_others(0, 5, at));
  }
}

TEST(LinkTable, OwnTrafficBefore_CountsUntilItsEnd) {
  LinkTable table(two_gpus());
  table.add_own(0, kNow, 100 * kUs, 6);
  table.add_own(0, kNow + 40 * kUs, 100 * kUs, 5);
  EXPECT_TRUE(table.has_others(0, 5, kNow + 40 * kUs));
  table.add_own(0, kNow + 99 * kUs, 100 * kUs, 5);
  EXPECT_TRUE(table.has_others(0, 5, kNow + 99 * kUs));
  EXPECT_FALSE(table.has_others(0, 5, kNow + 100 * kUs));
  EXPECT_TRUE(table.has_others(0, 6, kNow + 100 * kUs)) << "to the other stream it is traffic";
  EXPECT_FALSE(table.has_others(1, 5, kNow));
}

TEST(LinkTable, OwnTrafficAfter_Counts) {
  LinkTable table(two_gpus());
  table.add_own(0, kNow, 100 * kUs, 5);
  table.add_own(0, kNow + 300 * kUs, 10 * kUs, 6);
  EXPECT_TRUE(table.has_others(0, 5, kNow));
  table.add_own(0, kNow + kMs, 100 * kUs, 5);
  EXPECT_TRUE(table.has_others(0, 5, kNow)) << "also once its own follows";
  EXPECT_FALSE(table.has_others(0, 5, kNow + kMs));
}

TEST(LinkTable, OwnTrafficIssuedLate_LastsLonger) {
  LinkTable table(two_gpus());
  table.add_own(0, kNow, 100 * kUs, 6);
  table.add_own(0, kNow + 500 * kUs, 100 * kUs, 5);
  EXPECT_FALSE(table.has_others(0, 5, kNow + 500 * kUs));
  table.extend_own(0, kNow + 600 * kUs, 100 * kUs, 6);
  EXPECT_TRUE(table.has_others(0, 5, kNow + 699 * kUs));
  EXPECT_FALSE(table.has_others(0, 5, kNow + 700 * kUs));
}

TEST(LinkTable, OwnTrafficOverAPort_CountsWhereItIsFull) {
  for (const double gbps : {90.0, 110.0}) {
    Node node = two_gpus();
    node.ports.push_back({.name = "host", .gbps = gbps});
    for (Link& link : node.links)
      if (link.from.is_host()) link.ports = {0};
    LinkTable table(node);
    const int sampled = table.host_slot(0, false);
    table.add_own(table.host_slot(1, false), kNow, 100 * kUs, 6);
    EXPECT_EQ(table.has_full_port({sampled}, 5, kNow), gbps < 100);
    EXPECT_FALSE(table.has_full_port({sampled}, 6, kNow));
    EXPECT_FALSE(table.has_full_port({sampled}, 5, kNow + 100 * kUs));
    EXPECT_FALSE(table.has_full_port({table.host_slot(0, true)}, 5, kNow)) << "another port";
  }
}

TEST(LinkTable, LinksBetweenGpus_HaveSlots) {
  const Node node = two_gpus();
  const LinkTable table(node);
  EXPECT_EQ(table.gpu_slot(0, 1),
            table.slot_of(*node.find_link(MemoryId::gpu(0), MemoryId::gpu(1))));
  EXPECT_EQ(table.gpu_slot(1, 0),
            table.slot_of(*node.find_link(MemoryId::gpu(1), MemoryId::gpu(0))));
  EXPECT_EQ(table.gpu_slot(0, 0), -1);
  EXPECT_EQ(table.gpu_slot(-1, 0), -1);
}

TEST(LinkTable, CopiesOfOthers_CountByKind) {
  const LinkTable table(two_gpus());
  const Tolerance allowed{20 * kUs, 200 * kUs};
  const auto source = [&](const ForeignLoad& other) {
    return table.state(1, kNow, allowed, {}, {other}).source;
  };
  EXPECT_EQ(source({.slot = 1, .pid = 9, .direct_until_ns = kNow + 21 * kUs}),
            LoadSource::other_process);
  EXPECT_EQ(source({.slot = 1, .pid = 9, .direct_until_ns = kNow + 19 * kUs}), LoadSource::none);
  EXPECT_EQ(source({.slot = 1, .pid = 9, .staged_until_ns = kNow + 100 * kUs}), LoadSource::none);
  EXPECT_EQ(source({.slot = 1, .pid = 9, .staged_until_ns = kNow + 201 * kUs}),
            LoadSource::other_process);
  EXPECT_EQ(source({.slot = 1, .pid = 9, .measured_until_ns = kNow + kUs}),
            LoadSource::measured_by_other);
  EXPECT_EQ(source({.slot = 2, .pid = 9, .direct_until_ns = kNow + kMs}), LoadSource::none);
  EXPECT_EQ(source({.slot = 1, .pid = 9, .direct_until_ns = kNow + 3600 * 1000 * kMs}),
            LoadSource::none)
      << "a clock that jumped";
  EXPECT_EQ(
      table.state(1, kNow, allowed, {}, {{.slot = 1, .pid = 9, .direct_until_ns = kNow + kMs}}).pid,
      9);
}

TEST(LinkTable, Held_CountsAsMeasuredForAWhile) {
  LinkTable table(two_gpus());
  table.hold(0, kNow, 40 * kMs);
  EXPECT_EQ(table.state(0, kNow + 39 * kMs, {}, {}, {}).source, LoadSource::measured);
  EXPECT_EQ(table.state(0, kNow + 40 * kMs, {}, {}, {}).source, LoadSource::none);
  EXPECT_EQ(table.state(0, kNow - kMs, {}, {}, {}).source, LoadSource::measured);
  table.hold(0, kNow, 40 * kMs);
  EXPECT_EQ(table.state(0, kNow + 40 * kMs, {}, {}, {}).source, LoadSource::none);
}

TEST(LinkTable, Clear_ForgetsAll) {
  LinkTable table(two_gpus());
  table.add_copy(0, kNow, kMs, 1);
  table.set_measured(1, true);
  EXPECT_EQ(table.state(1, kNow, {}, {}, {}).source, LoadSource::measured);
  table.clear();
  for (const int slot : {0, 1})
    EXPECT_EQ(table.state(slot, kNow, {}, {}, {}).source, LoadSource::none);
}

TEST(IssueTimes, HaltedOnce_IsFound) {
  IssueTimes times;
  EXPECT_EQ(times.add(50, 50), 0);
  EXPECT_NEAR(times.add(2050, 50), 2000, 50);
  EXPECT_EQ(times.add(60, 50), 0);
  EXPECT_LT(times.ratio(), 1.5) << "one time does not make it usual";
}

TEST(IssueTimes, SlowerCpuThanTheModels_IsUsual) {
  IssueTimes times;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(times.add(125, 50), 0) << i;
  EXPECT_NEAR(times.ratio(), 2.5, 0.01);
  EXPECT_NEAR(times.add(1000, 50), 875, 50);
}

TEST(IssueTimes, HaltedAtFirst_IsForgotten) {
  IssueTimes times;
  times.add(5000, 50);
  for (int i = 0; i < 16; ++i) times.add(50, 50);
  EXPECT_LT(times.ratio(), 1.1);
}

TEST(RouteTolerance, EqualsHalfTheGainPerRoute) {
  EXPECT_EQ(tolerance(900, 1000, 1).ns, 50 * kUs);
  EXPECT_EQ(tolerance(400, 1000, 3).ns, 100 * kUs);
  EXPECT_EQ(tolerance(400, 1000, 3).staged_ns, 400 * kUs);
  EXPECT_EQ(tolerance(1000, 900, 1).ns, 0u);
}

}  // namespace
}  // namespace polypath::test
