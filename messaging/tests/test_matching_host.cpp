// The host's matching has the results of the literal MPI rule, and names what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "matching_cases.hpp"
#include "polypath/messaging/matching.h"

namespace polypath::test {
namespace {

constexpr std::uint32_t kPoison = 0xABADCAFE;

struct OnHost {
  polypath_status status;
  polypath_match_result outcome{};
  std::vector<std::uint32_t> matched_message;
};

OnHost match_on_host(const Traffic& traffic, polypath_match_order order = POLYPATH_ORDER_MPI) {
  OnHost result{};
  result.matched_message.assign(traffic.receives.size() + 1, kPoison);
  result.status = polypath_match_host(
      order, reinterpret_cast<const polypath_envelope*>(traffic.messages.data()),
      traffic.messages.size(), reinterpret_cast<const polypath_envelope*>(traffic.receives.data()),
      traffic.receives.size(), result.matched_message.data(), &result.outcome);
  EXPECT_EQ(result.matched_message.back(), kPoison);
  result.matched_message.pop_back();
  return result;
}

class HostMatching : public testing::TestWithParam<TrafficCase> {};

TEST_P(HostMatching, EqualsReference) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    TrafficCase test_case = GetParam();
    test_case.messages *= seed % 8 == 0 ? 20 : 1;
    test_case.receives *= seed % 8 == 0 ? 20 : 1;
    const Traffic traffic = draw(test_case, seed);
    const OnHost matched = match_on_host(traffic);
    ASSERT_EQ(matched.status, POLYPATH_SUCCESS);
    ASSERT_EQ(matched.matched_message, match_literally(traffic, seed)) << seed;
    std::uint32_t matches = 0;
    for (const std::uint32_t message : matched.matched_message) matches += message != kNone;
    EXPECT_EQ(matched.outcome.matches, matches);
    EXPECT_EQ(matched.outcome.unmatched_messages, test_case.messages - matches);
    EXPECT_EQ(matched.outcome.unmatched_receives, test_case.receives - matches);
  }
}

INSTANTIATE_TEST_SUITE_P(Traffic, HostMatching, testing::ValuesIn(kTraffic),
                         [](const auto& at) { return at.param.name; });

TEST(HostMatchingAdversary, ChainsAndBuckets) {
  for (const std::uint32_t length : {1U, 7U, 1000U}) {
    const Traffic traffic = chain(length);
    EXPECT_EQ(match_on_host(traffic).matched_message, match_literally(traffic, length));
  }
  const Traffic traffic = one_bucket(500, 10);
  EXPECT_EQ(match_on_host(traffic).matched_message, match_literally(traffic, 1));
}

TEST(HostMatchingInput, WrongEnvelope_IsReported) {
  const auto status_of = [](envelope message, envelope receive) {
    Traffic traffic{{{1, 1, 1}, message}, {{1, 1, 1}, {2, 2, 2}, receive}};
    const OnHost matched = match_on_host(traffic);
    EXPECT_EQ(matched.status, POLYPATH_SUCCESS);
    if (matched.outcome.status != POLYPATH_MATCH_DONE) {
      EXPECT_EQ(matched.matched_message, (std::vector<std::uint32_t>{kNone, kNone, kNone}));
    }
    return std::make_pair(matched.outcome.status, matched.outcome.index);
  };
  const envelope good{3, 3, 3};
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(status_of(good, good), Pair(POLYPATH_MATCH_DONE, 0));
  EXPECT_EQ(status_of({any_tag, 3, 3}, good), Pair(POLYPATH_MATCH_MESSAGE_TAG, 1));
  EXPECT_EQ(status_of({0x80000000, 3, 3}, good), Pair(POLYPATH_MATCH_MESSAGE_TAG, 1));
  EXPECT_EQ(status_of({3, any_source, 3}, good), Pair(POLYPATH_MATCH_MESSAGE_SOURCE, 1));
  EXPECT_EQ(status_of(good, {0x80000000, 3, 3}), Pair(POLYPATH_MATCH_RECEIVE_TAG, 2));
  EXPECT_EQ(status_of(good, {any_tag, any_source, 3}), Pair(POLYPATH_MATCH_DONE, 0));
}

TEST(HostMatchingInput, MissingInput_IsRefused) {
  const polypath_envelope header{1, 1, 1};
  std::uint32_t result = kPoison;
  EXPECT_EQ(polypath_match_host(POLYPATH_ORDER_MPI, nullptr, 1, &header, 1, &result, nullptr),
            POLYPATH_INVALID_ARGUMENT);
  EXPECT_EQ(polypath_match_host(POLYPATH_ORDER_MPI, &header, 1, nullptr, 1, &result, nullptr),
            POLYPATH_INVALID_ARGUMENT);
  EXPECT_EQ(polypath_match_host(POLYPATH_ORDER_MPI, &header, 1, &header, 1, nullptr, nullptr),
            POLYPATH_INVALID_ARGUMENT);
  EXPECT_EQ(polypath_match_host(POLYPATH_ORDER_MPI, &header, std::size_t{1} << 33, &header, 1,
                                &result, nullptr),
            POLYPATH_INVALID_ARGUMENT);
  EXPECT_THAT(polypath_last_error(), testing::HasSubstr("message_count"));
  EXPECT_EQ(polypath_match_host(77, &header, 1, &header, 1, &result, nullptr),
            POLYPATH_INVALID_ARGUMENT);
  EXPECT_EQ(result, kPoison);
  EXPECT_EQ(polypath_match_host(POLYPATH_ORDER_MPI, &header, 1, &header, 1, &result, nullptr),
            POLYPATH_SUCCESS);
  EXPECT_EQ(result, 0U);
}

}  // namespace
}  // namespace polypath::test
