// The judge of recorded histories (lab/bench/messaging/history.hpp): what a queue may do, and may not.
#include "history.hpp"

#include <gtest/gtest.h>

#include <random>

namespace messaging_bench {
namespace {

struct History {
  std::vector<Operation> pushes;
  std::vector<Operation> pops;
};

/// A history of a queue: each call takes effect at a moment of its own, within a call that is longer.
History legal_history(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  const auto around = [&](std::uint64_t id, std::uint64_t moment) {
    return Operation{id, moment - random() % 300, moment + random() % 300};
  };
  History all;
  std::uint64_t pushed = 1000;
  std::uint64_t popped = 1000;
  for (std::size_t i = 0; i < count; ++i) {
    pushed += 1 + random() % 50;
    popped = std::max(popped, pushed) + 1 + random() % 60;
    all.pushes.push_back(around(i, pushed));
    all.pops.push_back(around(i, popped));
  }
  return all;
}

TEST(Histories, QueueHistories_AreAccepted) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const History all = legal_history(seed, 200);
    EXPECT_EQ(why_not_linearizable(all.pushes, all.pops, 0), "") << seed;
  }
}

TEST(Histories, PopBeforePush_IsRejected) {
  History all = legal_history(3, 50);
  all.pops[20].ended = all.pushes[20].began - 1;
  all.pops[20].began = all.pops[20].ended - 1;
  EXPECT_NE(why_not_linearizable(all.pushes, all.pops, 0), "");
}

TEST(Histories, OvertakingItem_IsRejected) {
  // Pushed one after the other, popped the other way round.
  const std::vector<Operation> pushes = {{0, 10, 20}, {1, 30, 40}};
  std::vector<Operation> pops = {{0, 70, 80}, {1, 50, 60}};
  EXPECT_NE(why_not_linearizable(pushes, pops, 0), "");
  EXPECT_EQ(why_not_linearizable(pushes, pops, 10), "") << "the clock does not tell";
  pops[1].ended = 70;
  EXPECT_EQ(why_not_linearizable(pushes, pops, 0), "") << "both pops at once";
}

/// Two items that differ enough, exchanged anywhere in a long history.
TEST(Histories, WithExchangedItemsAreFound) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    History all = legal_history(seed, 400);
    const std::size_t at = seed * 5;
    std::swap(all.pops[at], all.pops[at + 100]);
    EXPECT_NE(why_not_linearizable(all.pushes, all.pops, 0), "") << seed;
  }
}

}  // namespace
}  // namespace messaging_bench
