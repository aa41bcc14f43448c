// The relaxed orders by the C API: on the host, and on a simulated node in one batch, in many
// queues and from batch to batch.
#include <string>

#include "matching_gpu.hpp"
#include "relaxed_cases.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;

/// Envelopes of the host as the C API has them.
const polypath_envelope* envelopes(const std::vector<envelope>& list) {
  return reinterpret_cast<const polypath_envelope*>(list.data());
}

std::string check_order(polypath_match_order order, const Traffic& traffic,
                        const std::vector<std::uint32_t>& matches) {
  if (order != POLYPATH_ORDER_NO_ANY_SOURCE) return check_pairs_by_key(traffic, matches);
  return matches == match_literally(traffic, 1) ? "" : "not the literal rule";
}

/// What an order allows; each `times` as long.
std::vector<Traffic> traffic_of(polypath_match_order order, std::uint32_t times) {
  std::vector<Traffic> all;
  if (order == POLYPATH_ORDER_UNORDERED_UNIQUE) {
    for (const std::uint32_t count : {0U, 30U, 90U})
      all.push_back(shuffled(count * times, count + 1, 5));
    for (std::size_t i = 0; i < all.back().receives.size(); i += 3)
      all.back().receives[i].tag += 100000;
    return all;
  }
  const auto add = [&](const TrafficCase& each) {
    TrafficCase test_case = each;
    test_case.messages *= times;
    test_case.receives *= times;
    all.push_back(draw(test_case, times));
  };
  if (order == POLYPATH_ORDER_NO_ANY_SOURCE)
    for (const TrafficCase& each : kOrdered) add(each);
  else
    for (const TrafficCase& each : kByKey) add(each);
  return all;
}

class RelaxedApi : public MatchingApi, public testing::WithParamInterface<polypath_match_order> {};

TEST_P(RelaxedApi, OnTheHost) {
  for (const std::uint32_t times : {1U, 10U})
    for (const Traffic& traffic : traffic_of(GetParam(), times)) {
      std::vector<std::uint32_t> results(traffic.receives.size() + 1, kPoison);
      polypath_match_result outcome{};
      EXPECT_OK(polypath_match_host(GetParam(), envelopes(traffic.messages),
                                    traffic.messages.size(), envelopes(traffic.receives),
                                    traffic.receives.size(), results.data(), &outcome));
      EXPECT_EQ(results.back(), kPoison);
      results.pop_back();
      EXPECT_EQ(check_order(GetParam(), traffic, results), "");
      EXPECT_EQ(outcome.matches + outcome.unmatched_receives, traffic.receives.size());
      EXPECT_EQ(outcome.matches + outcome.unmatched_messages, traffic.messages.size());
    }
}

TEST_P(RelaxedApi, SingleBatch_OfAnySize) {
  create(4000, GetParam());
  for (const std::uint32_t times : {1U, 10U})
    for (const Traffic& traffic : traffic_of(GetParam(), times)) {
      const Outcome result = match(traffic);
      EXPECT_EQ(result.outcome.status, POLYPATH_MATCH_DONE);
      EXPECT_EQ(check_order(GetParam(), traffic, result.matched_message), "");
      EXPECT_EQ(result.outcome.matches + result.outcome.unmatched_receives,
                traffic.receives.size());
      EXPECT_EQ(result.outcome.matches + result.outcome.unmatched_messages,
                traffic.messages.size());
    }
}

TEST_P(RelaxedApi, QueueBatch) {
  create(1000, GetParam());
  std::vector<Traffic> queues = traffic_of(GetParam(), 1);
  for (int i = 0; i < 40; ++i) queues.push_back(shuffled(20, static_cast<std::uint64_t>(i)));
  queues.push_back(shuffled(1001, 1));  // more than the capacity
  queues.push_back({{{0x80000000, 1, 1}}, {{1, 1, 1}}});
  queues.push_back(shuffled(900, 1));
  Traffic all;
  std::vector<std::uint32_t> message_begins{0};
  std::vector<std::uint32_t> receive_begins{0};
  for (const Traffic& each : queues) {
    all.messages.insert(all.messages.end(), each.messages.begin(), each.messages.end());
    all.receives.insert(all.receives.end(), each.receives.begin(), each.receives.end());
    message_begins.push_back(static_cast<std::uint32_t>(all.messages.size()));
    receive_begins.push_back(static_cast<std::uint32_t>(all.receives.size()));
  }
  const OnGpu messages(all.messages);
  const OnGpu receives(all.receives);
  const OnGpu first_messages(message_begins);
  const OnGpu first_receives(receive_begins);
  const OnGpu results(std::vector<std::uint32_t>(all.receives.size() + 1, kPoison));
  const OnGpu outcomes(std::vector<polypath_match_result>(queues.size()));
  EXPECT_OK(polypath_match_batched(matcher_, queues.size(), messages.get<polypath_envelope>(),
                                   first_messages.get(), receives.get<polypath_envelope>(),
                                   first_receives.get(), results.get(), outcomes.get(),
                                   streams_[0]));
  synchronize();
  const std::vector<std::uint32_t> matches = results.read();
  const std::vector<polypath_match_result> ends = outcomes.read();
  EXPECT_EQ(matches.back(), kPoison);
  for (std::size_t q = 0; q < queues.size(); ++q) {
    const std::uint32_t expected = q + 3 == queues.size()   ? POLYPATH_MATCH_FULL
                                   : q + 2 == queues.size() ? POLYPATH_MATCH_MESSAGE_TAG
                                                            : POLYPATH_MATCH_DONE;
    EXPECT_EQ(ends[q].status, expected) << q;
    const std::vector<std::uint32_t> own(
        matches.begin() + static_cast<std::ptrdiff_t>(receive_begins[q]),
        matches.begin() + static_cast<std::ptrdiff_t>(receive_begins[q + 1]));
    if (expected == POLYPATH_MATCH_DONE) {
      EXPECT_EQ(check_order(GetParam(), queues[q], own), "") << q;
    } else {
      EXPECT_EQ(own, std::vector<std::uint32_t>(own.size(), kNone)) << q;
    }
  }
  char* json = nullptr;
  EXPECT_OK(polypath_matcher_report(matcher_, &json));
  EXPECT_THAT(json, HasSubstr("\"refused\":2"));
  polypath_free_string(json);
}

TEST_P(RelaxedApi, BatchesCarryOver) {
  for (const std::uint32_t capacity : {320U, 1500U}) {
    create(capacity, GetParam());
    unsigned turn = 0;
    for (const Traffic& traffic : traffic_of(GetParam(), 1)) {
      EXPECT_OK(polypath_matcher_reset(matcher_, streams_[turn % 2]));
      const auto matches =
          carry(capacity, traffic, 1, [&](const auto& messages, const auto& receives, auto& pairs) {
            const Next result = next(messages, receives, capacity, ++turn % 2);
            EXPECT_EQ(result.outcome.status, POLYPATH_MATCH_DONE);
            pairs.insert(pairs.end(), result.pairs.begin(), result.pairs.end());
          });
      EXPECT_EQ(check_order(GetParam(), traffic, matches), "");
    }
  }
}

TEST_P(RelaxedApi, RefusedBatch_ChangesNothing) {
  const bool has_any_tag = GetParam() == POLYPATH_ORDER_NO_ANY_SOURCE;
  for (const std::uint32_t capacity : {200U, 1100U}) {
    create(capacity, GetParam());
    EXPECT_EQ(next({{1, 1, 1}, {2, 1, 1}}, {{3, 1, 1}}, capacity).outcome.matches, 0U);
    const auto refused = [&](const std::vector<envelope>& messages,
                             const std::vector<envelope>& receives, std::uint32_t status,
                             std::uint32_t index) {
      const Next result = next(messages, receives, capacity);
      EXPECT_EQ(result.outcome.status, status);
      EXPECT_EQ(result.outcome.index, index);
      EXPECT_EQ(result.outcome.unmatched_messages, 2U);
      EXPECT_EQ(result.outcome.unmatched_receives, 1U);
    };
    refused({{5, 1, 1}}, {{1, 1, 1}, {6, any_source, 1}}, POLYPATH_MATCH_WILDCARD, 1);
    refused({{5, 1, 1}, {6, any_source, 1}}, {{1, 1, 1}}, POLYPATH_MATCH_MESSAGE_SOURCE, 1);
    refused({{5, 1, 1}}, {{1, 1, 1}, {0x80000005, 1, 1}}, POLYPATH_MATCH_RECEIVE_TAG, 1);
    if (!has_any_tag) refused({}, {{any_tag, 1, 1}}, POLYPATH_MATCH_WILDCARD, 0);
    if (GetParam() == POLYPATH_ORDER_UNORDERED_UNIQUE) {
      EXPECT_EQ(next({{5, 1, 1}, {5, 1, 1}}, {}, capacity).outcome.status,
                POLYPATH_MATCH_DUPLICATE_MESSAGE);
    }
    const Next result = next({}, {{has_any_tag ? any_tag : 1, 1, 1}, {2, 1, 1}}, capacity);
    ASSERT_EQ(result.pairs.size(), 2U);
    EXPECT_EQ(result.pairs[0].message, 0U);
    EXPECT_EQ(result.pairs[1].message, 1U);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, RelaxedApi,
                         testing::Values(POLYPATH_ORDER_NO_ANY_SOURCE, POLYPATH_ORDER_UNORDERED,
                                         POLYPATH_ORDER_UNORDERED_UNIQUE));

TEST_F(MatchingApi, TablesWithoutOrderMayBeLarger) {
  create(1U << 22, POLYPATH_ORDER_UNORDERED);
  polypath_matcher* none = nullptr;
  polypath_matcher_options options{POLYPATH_ORDER_NO_ANY_SOURCE, 1U << 22, 0, {}};
  EXPECT_REFUSED("capacity", polypath_matcher_create(comm_, &options, &none));
  options = {POLYPATH_ORDER_UNORDERED, (1U << 24) + 1, 0, {}};
  EXPECT_REFUSED("capacity", polypath_matcher_create(comm_, &options, &none));
}

TEST(RelaxedOnHost, RefusesWhatKernelsRefuse) {
  const auto status_of = [](polypath_match_order order, const Traffic& traffic) {
    std::vector<std::uint32_t> results(traffic.receives.size(), kPoison);
    polypath_match_result outcome{};
    EXPECT_OK(polypath_match_host(order, envelopes(traffic.messages), traffic.messages.size(),
                                  envelopes(traffic.receives), traffic.receives.size(),
                                  results.data(), &outcome));
    if (outcome.status != POLYPATH_MATCH_DONE) {
      EXPECT_EQ(results, std::vector<std::uint32_t>(results.size(), kNone));
    }
    return std::pair(outcome.status, outcome.index);
  };
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  const Traffic any_tags{{{1, 1, 1}}, {{2, 1, 1}, {any_tag, 1, 1}}};
  EXPECT_EQ(status_of(POLYPATH_ORDER_NO_ANY_SOURCE, any_tags), Pair(POLYPATH_MATCH_DONE, 0));
  EXPECT_EQ(status_of(POLYPATH_ORDER_UNORDERED, any_tags), Pair(POLYPATH_MATCH_WILDCARD, 1));
  EXPECT_EQ(status_of(POLYPATH_ORDER_UNORDERED_UNIQUE, any_tags), Pair(POLYPATH_MATCH_WILDCARD, 1));
  const Traffic any_sources{{{1, 1, 1}}, {{2, 1, 1}, {1, any_source, 1}}};
  EXPECT_EQ(status_of(POLYPATH_ORDER_NO_ANY_SOURCE, any_sources), Pair(POLYPATH_MATCH_WILDCARD, 1));
  EXPECT_EQ(status_of(POLYPATH_ORDER_UNORDERED, any_sources), Pair(POLYPATH_MATCH_WILDCARD, 1));
  const Traffic twice{{{1, 1, 1}, {2, 1, 1}, {1, 1, 1}}, {{1, 1, 1}}};
  EXPECT_EQ(status_of(POLYPATH_ORDER_UNORDERED, twice), Pair(POLYPATH_MATCH_DONE, 0));
  EXPECT_EQ(status_of(POLYPATH_ORDER_UNORDERED_UNIQUE, twice),
            Pair(POLYPATH_MATCH_DUPLICATE_MESSAGE, 2));
  const Traffic none_came{{{1, 1, 1}}, {{3, 1, 1}, {3, 1, 1}}};
  EXPECT_EQ(status_of(POLYPATH_ORDER_UNORDERED_UNIQUE, none_came), Pair(POLYPATH_MATCH_DONE, 0));
  const Traffic receives_twice{{{3, 1, 1}}, {{3, 1, 1}, {3, 1, 1}}};
  EXPECT_EQ(status_of(POLYPATH_ORDER_UNORDERED_UNIQUE, receives_twice),
            Pair(POLYPATH_MATCH_DUPLICATE_RECEIVE, 1));
}

/// What is left over has no place in the batch that is refused for it.
TEST_F(MatchingApi, Duplicate_NewerOneIsReported) {
  create(2000, POLYPATH_ORDER_UNORDERED_UNIQUE);
  ASSERT_EQ(next({{9, 1, 1}, {1, 1, 1}}, {{2, 2, 2}}, 10).outcome.unmatched_messages, 2U);
  for (int time = 0; time < 8; ++time) {
    Next result = next({{4, 1, 1}, {5, 1, 1}, {1, 1, 1}}, {{4, 1, 1}}, 10);
    EXPECT_EQ(result.outcome.status, POLYPATH_MATCH_DUPLICATE_MESSAGE);
    EXPECT_EQ(result.outcome.index, 2U);
    result = next({{2, 2, 2}}, {{4, 1, 1}, {2, 2, 2}}, 10);
    EXPECT_EQ(result.outcome.status, POLYPATH_MATCH_DUPLICATE_RECEIVE);
    EXPECT_EQ(result.outcome.index, 1U);
    EXPECT_EQ(result.outcome.unmatched_messages, 2U);
    EXPECT_EQ(result.outcome.unmatched_receives, 1U);
  }
}

}  // namespace
}  // namespace polypath::test
