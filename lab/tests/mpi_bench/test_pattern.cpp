#include "pattern.hpp"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "support/usage_error.hpp"

namespace mpi_bench {
namespace {

using Rank = Flows (*)(Pattern pattern, int rank, int size);

/// Receivers by sender and tag, and the same as the receivers see it.
std::pair<std::map<std::pair<int, int>, int>, std::map<std::pair<int, int>, int>> all(
    Rank rank_flows, Pattern pattern, int size) {
  std::map<std::pair<int, int>, int> sent;
  std::map<std::pair<int, int>, int> received;
  for (int rank = 0; rank < size; ++rank) {
    const Flows flows = rank_flows(pattern, rank, size);
    for (const Flow& flow : flows.to)
      EXPECT_TRUE(sent.emplace(std::pair(rank, flow.tag), flow.peer).second);
    for (const Flow& flow : flows.from)
      EXPECT_TRUE(received.emplace(std::pair(flow.peer, flow.tag), rank).second);
  }
  return {sent, received};
}

TEST(Pattern, SendsMatchReceives) {
  for (const Rank flows : {one_way, both_ways}) {
    for (const int size : {2, 4, 6})
      EXPECT_EQ(all(flows, Pattern::pair, size).first, all(flows, Pattern::pair, size).second);
    for (const int size : {2, 3, 4})
      EXPECT_EQ(all(flows, Pattern::ring, size).first, all(flows, Pattern::ring, size).second);
  }
}

TEST(Pattern, PairsAreOfNeighbours) {
  EXPECT_EQ(all(one_way, Pattern::pair, 4).first,
            (std::map<std::pair<int, int>, int>{{{0, 1}, 1}, {{2, 1}, 3}}));
  EXPECT_EQ(all(both_ways, Pattern::pair, 2).first,
            (std::map<std::pair<int, int>, int>{{{0, 1}, 1}, {{1, 2}, 0}}));
}

TEST(Pattern, RingIsClosed) {
  EXPECT_EQ(all(one_way, Pattern::ring, 3).first,
            (std::map<std::pair<int, int>, int>{{{0, 1}, 1}, {{1, 1}, 2}, {{2, 1}, 0}}));
  EXPECT_EQ(all(both_ways, Pattern::ring, 4).first.size(), 8U);
}

TEST(Pattern, NeedsEnoughRanks) {
  EXPECT_THROW(require_ranks(Pattern::pair, 3), UsageError);
  EXPECT_THROW(require_ranks(Pattern::pair, 0), UsageError);
  EXPECT_THROW(require_ranks(Pattern::ring, 1), UsageError);
  EXPECT_NO_THROW(require_ranks(Pattern::ring, 3));
  EXPECT_NO_THROW(require_ranks(Pattern::pair, 4));
}

TEST(Pattern, Names) {
  EXPECT_EQ(parse_pattern("--pattern", "ring"), Pattern::ring);
  EXPECT_EQ(parse_pattern("--pattern", to_string(Pattern::pair)), Pattern::pair);
  EXPECT_THROW(parse_pattern("--pattern", "star"), UsageError);
}

}  // namespace
}  // namespace mpi_bench
