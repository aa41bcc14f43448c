// Which transfers of a process count as concurrent, by a clock that the test has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/own_transfers.hpp"

namespace polypath::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr std::uint64_t kUs = 1'000;
constexpr std::uint64_t kNow = 100'000'000 * kUs;
/// Takes 1 ms by a link of 50 GB/s.
constexpr std::uint64_t kBytes = 50'000'000;
constexpr std::uint64_t kTakesNs = 1'000 * kUs;

/// Three GPUs on links of 50 GB/s to host memory, which are planned with as 25.
Node three_gpus() {
  Node node;
  node.gpus.resize(3);
  node.hosts.resize(1);
  for (int gpu = 0; gpu < 3; ++gpu)
    node.links.push_back({.from = MemoryId::host(0),
                          .to = MemoryId::gpu(gpu),
                          .type = LinkType::pcie,
                          .gbps = 25,
                          .nominal_gbps = 50,
                          .ports = {}});
  return node;
}

class OwnTransfersTest : public testing::Test {
 protected:
  static Request load(int gpu, std::uint64_t bytes = kBytes) {
    return {MemoryId::host(0), MemoryId::gpu(gpu), bytes};
  }
  /// A transfer alone in its call; returns the GPUs of the loads that it is planned with.
  std::vector<int> begin(const Request& request, std::uintptr_t stream, std::uint64_t now_ns,
                         const Plan* alone = nullptr) {
    start_ = transfers_.begin({&request, 1}, {&stream, 1}, now_ns, alone);
    std::vector<int> gpus;
    for (const Request& each : start_.concurrent) {
      EXPECT_EQ(each.bytes, 0u);
      gpus.push_back(each.dst.index);
    }
    std::ranges::sort(gpus);
    gpus.erase(std::ranges::unique(gpus).begin(), gpus.end());
    return gpus;
  }
  /// One transfer, evenly over the links of this many GPUs.
  static Plan split_plan(std::uint64_t bytes, int links) {
    Plan plan;
    TransferPlan& transfer = plan.transfers.emplace_back();
    for (int link = 0; link < links; ++link)
      transfer.routes.push_back({.route = {RouteKind::via_gpu, {}, {link}},
                                 .bytes = bytes / static_cast<std::uint64_t>(links)});
    return plan;
  }
  /// The last one is split like that.
  void split(std::uint64_t bytes, int links) {
    transfers_.set_plan(start_, 0, split_plan(bytes, links));
  }

  Node node_ = three_gpus();
  OwnTransfers transfers_{node_};
  OwnTransfers::Start start_;
};

TEST_F(OwnTransfersTest, UnderWayOnOtherStream_IsConcurrent) {
  EXPECT_THAT(begin(load(0), 1, kNow), IsEmpty());
  EXPECT_THAT(begin(load(1), 2, kNow + 10 * kUs), ElementsAre(0));
  EXPECT_THAT(begin(load(2), 3, kNow + 20 * kUs), ElementsAre(0, 1));
}

TEST_F(OwnTransfersTest, SameStream_IsNot) {
  EXPECT_THAT(begin(load(0), 1, kNow), IsEmpty());
  EXPECT_THAT(begin(load(1), 1, kNow), IsEmpty());
  // It comes after both, which are over by then.
  EXPECT_THAT(begin(load(2), 1, kNow), IsEmpty());
  EXPECT_THAT(begin(load(2), 2, kNow), ElementsAre(0));
}

TEST_F(OwnTransfersTest, Lead_IsWhatIsQueuedOnTheStream) {
  begin(load(0), 1, kNow);
  EXPECT_EQ(start_.lead_ns, 0u);
  begin(load(0), 1, kNow + kTakesNs / 4);
  EXPECT_EQ(start_.lead_ns, kTakesNs * 3 / 4);
  begin(load(0), 1, kNow + kTakesNs / 4);
  EXPECT_EQ(start_.lead_ns, kTakesNs * 7 / 4);
  begin(load(0), 2, kNow + kTakesNs / 4);
  EXPECT_EQ(start_.lead_ns, 0u);
}

TEST_F(OwnTransfersTest, SamePair_IsNot) {
  EXPECT_THAT(begin(load(0), 1, kNow), IsEmpty());
  EXPECT_THAT(begin(load(0), 2, kNow), IsEmpty());
}

TEST_F(OwnTransfersTest, FirstOfARow_KnowsWhatFollowedLastTime) {
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t now = kNow + static_cast<std::uint64_t>(round) * 2 * kTakesNs;
    const std::vector<int> next_to_first = begin(load(0), 1, now);
    if (round == 0)
      EXPECT_THAT(next_to_first, IsEmpty());
    else
      EXPECT_THAT(next_to_first, ElementsAre(1, 2));
    begin(load(1), 2, now);
    begin(load(2), 3, now);
  }
}

TEST_F(OwnTransfersTest, Successive_AreNot) {
  // They take as long as their links' data sheets say, which is half of what plans count with.
  for (std::uint64_t now = kNow; now < kNow + 20 * kTakesNs; now += 2 * kTakesNs) {
    EXPECT_THAT(begin(load(0), 1, now), IsEmpty());
    EXPECT_THAT(begin(load(1), 2, now + kTakesNs), IsEmpty());
  }
}

TEST_F(OwnTransfersTest, SplitTransfers_EndWithTheirLargestShare) {
  begin(load(0), 1, kNow);
  split(kBytes, 2);
  EXPECT_THAT(begin(load(1), 2, kNow + kTakesNs / 2), IsEmpty());
  EXPECT_THAT(begin(load(2), 3, kNow + kTakesNs / 4), ElementsAre(0, 1));
}

TEST_F(OwnTransfersTest, ShortOverlap_DoesNotCount) {
  begin(load(0), 1, kNow);
  EXPECT_THAT(begin(load(1), 2, kNow + kTakesNs * 8 / 10), IsEmpty());
  EXPECT_THAT(begin(load(1, 2 * kBytes), 3, kNow + kTakesNs * 6 / 10), IsEmpty());
  EXPECT_THAT(begin(load(2), 4, kNow + kTakesNs * 7 / 10), ElementsAre(0, 1));
}

TEST_F(OwnTransfersTest, ShortTransfers_DoNotHoldBackLongOne) {
  for (int i = 0; i < 4; ++i) begin(load(1, kBytes / 16), 2, kNow);
  EXPECT_THAT(begin(load(0, 4 * kBytes), 1, kNow), IsEmpty());
  EXPECT_THAT(begin(load(1, kBytes / 16), 2, kNow), ElementsAre(0));
}

TEST_F(OwnTransfersTest, ManyShortTransfers_CountTogether) {
  for (int i = 0; i < 16; ++i) begin(load(1, kBytes / 16), 2, kNow);
  EXPECT_THAT(begin(load(0), 1, kNow), ElementsAre(1));
}

TEST_F(OwnTransfersTest, ManyStreamsOfOnePair_CountTogether) {
  for (std::uintptr_t stream = 2; stream < 10; ++stream) begin(load(1, kBytes / 16), stream, kNow);
  EXPECT_THAT(begin(load(0), 1, kNow), ElementsAre(1));
}

/// Its two transfers come one after another, so the new one does not meet both.
TEST_F(OwnTransfersTest, StreamOfTwoPairs_CountsOnce) {
  begin(load(1, kBytes / 2), 2, kNow);
  begin(load(2, kBytes), 2, kNow);
  EXPECT_THAT(begin(load(0, 3 * kBytes / 2), 1, kNow), ElementsAre(2));
}

TEST_F(OwnTransfersTest, FewTransfersAlone_AndOthersAreForgotten) {
  begin(load(0), 1, kNow);
  begin(load(1), 2, kNow);
  std::uint64_t now = kNow;
  for (int i = 0; i < OwnTransfers::kMaxEarlier; ++i) {
    now += 2 * kTakesNs;
    EXPECT_THAT(begin(load(0), 1, now), ElementsAre(1));
  }
  EXPECT_THAT(begin(load(0), 1, now + 2 * kTakesNs), IsEmpty());
}

TEST_F(OwnTransfersTest, LongAgo_IsForgotten) {
  begin(load(0), 1, kNow);
  begin(load(1), 2, kNow);
  EXPECT_THAT(begin(load(0), 1, kNow + 2 * OwnTransfers::kForgottenNs), IsEmpty());
}

TEST_F(OwnTransfersTest, ClockJumpsBack_IsForgotten) {
  begin(load(0), 1, kNow);
  begin(load(1), 2, kNow);
  EXPECT_THAT(begin(load(0), 1, kUs), IsEmpty());
  EXPECT_THAT(begin(load(1), 2, kUs), ElementsAre(0));
}

TEST_F(OwnTransfersTest, Group_IsPlannedTogetherAlready) {
  const std::vector<Request> group{load(0), load(1)};
  const std::vector<std::uintptr_t> streams{1, 2};
  EXPECT_THAT(transfers_.begin(group, streams, kNow).concurrent, IsEmpty());
  EXPECT_THAT(begin(load(2), 3, kNow), ElementsAre(0, 1));
}

TEST_F(OwnTransfersTest, DeepQueues_AreOneRowEach) {
  for (int round = 0; round < 2; ++round) {
    const std::uint64_t now = kNow + static_cast<std::uint64_t>(round) * 1000 * kTakesNs;
    for (int gpu = 0; gpu < 3; ++gpu)
      for (int i = 0; i < 100; ++i) {
        const std::vector<int> next_to =
            begin(load(gpu), static_cast<std::uintptr_t>(gpu + 1), now);
        EXPECT_EQ(next_to.size(), round == 0 ? static_cast<std::size_t>(gpu) : 2u);
      }
    begin(load(0), 1, now);
    EXPECT_EQ(start_.lead_ns, 100 * kTakesNs);
  }
}

TEST_F(OwnTransfersTest, LargeTransfer_IsApartFromSmallOnes) {
  for (int gpu = 0; gpu < 3; ++gpu)
    begin(load(gpu, kBytes / 16), static_cast<std::uintptr_t>(gpu + 1), kNow);
  EXPECT_THAT(begin(load(0, kBytes), 1, kNow + 2 * kTakesNs), IsEmpty());
  EXPECT_THAT(begin(load(0, kBytes / 16), 1, kNow + 4 * kTakesNs), ElementsAre(1, 2));
}

/// They met once. Alone each takes a third of its native time, and they do not meet again.
TEST_F(OwnTransfersTest, NativeBecauseOfNeighbours_CountsAsAlone) {
  const Plan alone = split_plan(kBytes, 3);
  const auto native = [&](int gpu, std::uint64_t now_ns) {
    const auto next_to = begin(load(gpu), static_cast<std::uintptr_t>(gpu + 1), now_ns, &alone);
    transfers_.set_native(start_, !next_to.empty());
    return next_to;
  };
  native(0, kNow);
  EXPECT_THAT(native(1, kNow), ElementsAre(0));
  std::uint64_t now = kNow;
  for (int i = 0; i < OwnTransfers::kMaxEarlier; ++i) {
    now += 3 * kTakesNs;
    native(0, now);
    native(1, now + kTakesNs / 2);
  }
  EXPECT_THAT(native(0, now + 3 * kTakesNs), IsEmpty());
}

TEST_F(OwnTransfersTest, WithoutPause_KeepNativeTimes) {
  const Plan alone = split_plan(kBytes, 3);
  for (std::uint64_t i = 0; i < 5; ++i) {
    begin(load(0), 1, kNow + i * kTakesNs, &alone);
    transfers_.set_native(start_, true);
    const auto next_to = begin(load(1), 2, kNow + i * kTakesNs + kTakesNs / 2, &alone);
    transfers_.set_native(start_, true);
    if (i > 0) {
      EXPECT_THAT(next_to, ElementsAre(0));
    }
  }
}

TEST_F(OwnTransfersTest, OtherThreads_IssueForThemselves) {
  std::thread([&] { begin(load(0), 1, kNow); }).join();
  EXPECT_THAT(begin(load(1), 2, kNow), ElementsAre(0));
  EXPECT_THAT(start_.by_thread, IsEmpty());
  begin(load(2), 3, kNow);
  EXPECT_EQ(start_.concurrent.size(), 2u);
  EXPECT_EQ(start_.by_thread.size(), 1u);
}

TEST_F(OwnTransfersTest, OlderThanAllKept_IsNotTouched) {
  begin(load(0), 1, kNow);
  const OwnTransfers::Start first = start_;
  for (std::size_t i = 0; i < OwnTransfers::kMaxRows; ++i)
    begin(load(1), 2, kNow + (50 + 2 * i) * kTakesNs);
  start_ = first;
  split(1000 * kBytes, 1);
  EXPECT_THAT(begin(load(2), 3, kNow + 500 * kTakesNs), IsEmpty());
}

}  // namespace
}  // namespace polypath::test
