// Channels over relays, by the kernels' host builds: every byte, and which memory the tiles were in.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "collectives/kernels/tiles.h"
#include "relay_cases.hpp"

namespace polypath::test {
namespace {

TEST(RelayKernels, RandomRows_AreRight) {
  std::string wrong;
  EXPECT_EQ(0, first_wrong_relay_row(random_rows(80), &wrong)) << wrong;
}

TEST(RelayKernels, EachRelay_HasTiles) {
  for (const CollectiveOp op :
       {CollectiveOp::allreduce, CollectiveOp::all_gather, CollectiveOp::all_to_all,
        CollectiveOp::broadcast, CollectiveOp::reduce, CollectiveOp::reduce_scatter}) {
    CollectiveCase what = relay_case(op, 2, 2, 6000);
    HostKernelRanks ranks(relay_shape(2, 2), 2);
    ASSERT_EQ("", ranks.run_row({what}, 3));
    EXPECT_TRUE(ranks.has_used_relay(0) && ranks.has_used_relay(1)) << what.text();
    HostKernelRanks alone(relay_shape(2, 2), 2);
    what.is_relayed = false;
    ASSERT_EQ("", alone.run_row({what}, 4));
    EXPECT_FALSE(alone.has_used_relay(0) || alone.has_used_relay(1)) << what.text();
  }
}

/// What a relay or a straight link carries of a call whose pieces are of one length.
TEST(RelayKernels, Links_CarryAlike) {
  for (const auto& [ranks, relays] : {std::pair{2U, 1U}, {2U, 2U}, {2U, 6U}, {3U, 1U}, {4U, 4U}}) {
    const ChannelWays ways{ranks, relays};
    std::vector<std::uint32_t> over(relays);
    std::uint32_t straight = 0;
    for (std::uint32_t channel = 0; channel < 5 * ways.period(); ++channel) {
      const std::uint32_t relay = ways.relay_of(channel);
      ++(relay == ChannelWays::kStraight ? straight : over[relay]);
    }
    for (const std::uint32_t channels : over) EXPECT_EQ(straight, channels * (ranks - 1));
  }
}

/// Shares follow each other and hold the whole piece. One over a relay is a tile a hop shorter.
TEST(RelayKernels, SharesOfWays_EndTogether) {
  constexpr std::uint32_t kGranule = kChannelGranule;
  Random random(7);
  for (int row = 0; row < 2000; ++row) {
    const std::uint32_t ranks = 2 + random() % 3;
    const ChannelWays ways{ranks, static_cast<std::uint32_t>(random() % 5)};
    const std::uint32_t channels = 1 + random() % 40;
    const std::uint32_t most = kGranule * (1 + random() % 64);
    const std::uint32_t hops = 1 + random() % 2;
    const std::uint64_t longest = 1 + random() % (row % 2 == 0 ? 1 << 14 : 1 << 24);
    SCOPED_TRACE(fmt::format("{} ranks, {} relays, {} channels, {} bytes in tiles of {}", ranks,
                             ways.relays, channels, longest, most));
    std::uint64_t end = 0;
    std::uint64_t shares[2] = {};  // over relays, straight
    for (std::uint32_t channel = 0; channel < channels; ++channel) {
      const Cut cut = cut_of(longest, channels, channel, most, ways, hops);
      if (cut.tiles == 0) {
        EXPECT_GE(end, longest);
        continue;
      }
      EXPECT_EQ(end, cut.begin);
      end = cut.end;
      EXPECT_LE(cut.tile, most);
      EXPECT_EQ(0U, cut.tile % kGranule);
      EXPECT_GE(std::uint64_t{cut.tile} * cut.tiles, cut.end - cut.begin);
      std::uint64_t& share = shares[ways.relay_of(channel) == ChannelWays::kStraight ? 1 : 0];
      EXPECT_TRUE(share == 0 || share == cut.end - cut.begin);
      share = cut.end - cut.begin;
    }
    EXPECT_GE(end, longest);
    EXPECT_LT(end, longest + std::uint64_t{channels} * 2 * kGranule);
    if (shares[0] == 0 || shares[1] == 0) continue;
    EXPECT_EQ(shares[1] - shares[0], std::min<std::uint64_t>(shares[0], hops * most));
  }
}

TEST(RelayKernels, RingsOfARelay_LieApart) {
  for (const auto& [ranks, relays] : {std::pair{2U, 2U}, {3U, 1U}, {4U, 4U}}) {
    const ScratchShape shape{ranks, 16, 8, 2048, 1024};
    const RelayLayout layout{shape, {ranks, relays}, 1024};
    std::vector<bool> taken(layout.bytes() / layout.slot_bytes / shape.slots);
    for (std::uint32_t channel = 0; channel < shape.channels; ++channel) {
      if (layout.ways.relay_of(channel) != 0) continue;
      for (std::uint32_t ring = 0; ring < 2; ++ring)
        for (std::uint32_t owner = 0; owner < ranks; ++owner)
          for (std::uint32_t sender = 0; sender < ranks; ++sender) {
            if (sender == owner) continue;
            const std::uint64_t at = layout.ring(ring, owner, sender, channel);
            const std::uint64_t place = at / layout.slot_bytes / shape.slots;
            ASSERT_EQ(0, at % (std::uint64_t{layout.slot_bytes} * shape.slots));
            ASSERT_LT(place, taken.size());
            EXPECT_FALSE(taken[place]);
            taken[place] = true;
          }
    }
  }
}

TEST(RelayKernels, EachChannel_IsTimed) {
  const CollectiveCase what = relay_case(CollectiveOp::allreduce, 2, 2, 20000);
  HostKernelRanks ranks(relay_shape(2, 2), 2);
  ASSERT_EQ("", ranks.run_row({what}, 5));
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    for (std::uint32_t channel = 0; channel < what.blocks; ++channel) {
      const auto [first, last] = ranks.channel_ns(rank, channel);
      EXPECT_NE(0U, first);
      EXPECT_LE(first, last);
    }
}

}  // namespace
}  // namespace polypath::test
