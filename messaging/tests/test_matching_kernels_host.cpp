// Matching in MPI's order by a warp and by a block: equal to the literal rule for any traffic, and
// what these tests are worth: each defect of match_mutant is found.
#include <gtest/gtest.h>

#include "matching_cases.hpp"
#include "matching_kernels.h"
#include "polypath/device/matcher_mpi.cuh"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using device::match_mutant;
using device::match_status;

constexpr std::uint32_t kPoison = 0xABADCAFE;

struct Matched {
  std::string error;
  device::match_outcome outcome{};
  std::vector<std::uint32_t> matched_message;
  std::vector<std::uint32_t> matched_receive;
};

struct Way {
  const char* kernel;
  unsigned threads;
  std::uint32_t capacity;
  bool by_warp = false;
  std::uint32_t times = 1;
};
constexpr Way kOfOneWord{"polypath_test_match_32", 64, 32};
constexpr Way kByWarp{"polypath_test_match_64", 32, 64};
constexpr Way kByBlock{"polypath_test_match_256", 128, 256};
constexpr Way kByOneWarp{"polypath_test_match_256", 32, 256, true};
constexpr Way kByWholeBlock{"polypath_test_match_1024", 1024, 1024};
constexpr Way kByHalfABlock{"polypath_test_match_1024", 512, 1024};
constexpr Way kTwice{"polypath_test_match_256", 64, 256, false, 2};

template <unsigned kCapacity>
constexpr std::size_t storage_bytes() {
  return sizeof(typename device::matcher<device::mpi, kCapacity>::storage);
}

Matched run_match(const Way& way, const Traffic& traffic, std::uint64_t seed) {
  Matched matched;
  matched.matched_message.assign(traffic.receives.size() + 1, kPoison);
  matched.matched_receive.assign(traffic.messages.size() + 1, kPoison);
  const MatchRow row{{traffic.messages.data(), static_cast<std::uint32_t>(traffic.messages.size()),
                      static_cast<std::uint32_t>(traffic.receives.size()), traffic.receives.data(),
                      matched.matched_message.data(), matched.matched_receive.data()},
                     &matched.outcome,
                     way.times,
                     way.by_warp};
  simt::RunOptions options;
  options.seed = seed;
  simt::Launch launch = simt::launch(way.kernel, 0, 1, way.threads, row);
  launch.shared_bytes = way.capacity == 32    ? storage_bytes<32>()
                        : way.capacity == 64  ? storage_bytes<64>()
                        : way.capacity == 256 ? storage_bytes<256>()
                                              : storage_bytes<1024>();
  matched.error = simt::run({{launch}}, options);
  return matched;
}

/// Empty, or what is wrong.
std::string compare(const Matched& matched, const Traffic& traffic,
                    const std::vector<std::uint32_t>& expected) {
  if (!matched.error.empty()) return matched.error;
  if (matched.outcome.status != match_status::done) return "not done";
  std::vector<std::uint32_t> matched_receive(traffic.messages.size(), kNone);
  std::uint32_t matches = 0;
  for (std::uint32_t i = 0; i < expected.size(); ++i) {
    if (matched.matched_message[i] != expected[i])
      return "receive " + std::to_string(i) + " has " + std::to_string(matched.matched_message[i]) +
             ", not " + std::to_string(expected[i]);
    if (expected[i] == kNone) continue;
    matched_receive[expected[i]] = i;
    ++matches;
  }
  for (std::size_t i = 0; i < matched_receive.size(); ++i)
    if (matched.matched_receive[i] != matched_receive[i])
      return "message " + std::to_string(i) + " has another receive";
  if (matched.matched_message.back() != kPoison || matched.matched_receive.back() != kPoison)
    return "written behind the results";
  if (matched.outcome.matches != matches ||
      matched.outcome.unmatched_messages != traffic.messages.size() - matches ||
      matched.outcome.unmatched_receives != traffic.receives.size() - matches)
    return "counts are wrong";
  return "";
}

std::string run_and_compare(const Way& way, const Traffic& traffic, std::uint64_t seed) {
  return compare(run_match(way, traffic, seed), traffic, match_literally(traffic, seed));
}

Traffic cut_to(Traffic traffic, std::uint32_t capacity) {
  if (traffic.messages.size() > capacity) traffic.messages.resize(capacity);
  if (traffic.receives.size() > capacity) traffic.receives.resize(capacity);
  return traffic;
}

class Matching : public testing::TestWithParam<TrafficCase> {};

TEST_P(Matching, AnyInterleaving_EqualsReference) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Traffic traffic = draw(GetParam(), seed);
    const std::vector<std::uint32_t> expected = match_literally(traffic, seed);
    for (std::uint64_t other = 10; other < 16; ++other)
      ASSERT_EQ(match_literally(traffic, other), expected) << "the rule depends on interleaving";
    ASSERT_EQ(compare(run_match(kByBlock, traffic, seed), traffic, expected), "") << seed;
    ASSERT_EQ(run_and_compare(kByOneWarp, traffic, seed), "") << seed;
    ASSERT_EQ(run_and_compare(kByWarp, cut_to(traffic, 64), seed), "") << seed;
    ASSERT_EQ(run_and_compare(kOfOneWord, cut_to(traffic, 32), seed), "") << seed;
  }
}

TEST_P(Matching, StorageNeedsNoPreparation) {
  ASSERT_EQ(run_and_compare(kTwice, draw(GetParam(), 77), 77), "");
}

INSTANTIATE_TEST_SUITE_P(Traffic, Matching, testing::ValuesIn(kTraffic),
                         [](const auto& at) { return at.param.name; });

/// Patterns whose places in the table are one: receives from any source see messages that they do
/// not ask for.
TEST(MatchingAdversary, PatternsInOneBucket) {
  const device::detail::slot_hash first_slot(0, device::detail::log2_above(2 * 41));
  const auto slot_of_tag = [&](std::uint32_t tag) {
    return first_slot(device::bits_of({tag, any_source, 0}));
  };
  Traffic traffic;
  for (std::uint32_t tag = 1; traffic.messages.size() < 120; ++tag)
    if (slot_of_tag(tag) == slot_of_tag(0))
      traffic.messages.push_back({tag, static_cast<std::uint16_t>(tag % 7), 0});
  traffic.messages.insert(traffic.messages.begin() + 60, traffic.messages[119]);
  for (std::uint32_t i = 0; i < 121; i += 3)
    traffic.receives.push_back({traffic.messages[120 - i].tag, any_source, 0});
  EXPECT_EQ(run_and_compare(kByBlock, traffic, 1), "");
}

constexpr TrafficCase kLarge[] = {
    {.name = "keys", .messages = 1024, .receives = 1024, .tags = 16, .sources = 64},
    {.name = "some_wildcards",
     .messages = 1024,
     .receives = 1000,
     .tags = 16,
     .sources = 64,
     .any_source_percent = 6,
     .any_tag_percent = 6},
    {.name = "many_wildcards",
     .messages = 1000,
     .receives = 1024,
     .tags = 8,
     .sources = 8,
     .communicators = 2,
     .any_source_percent = 40,
     .any_tag_percent = 40},
    {.name = "any_any_alone",
     .messages = 1024,
     .receives = 1024,
     .tags = 16,
     .sources = 64,
     .any_source_percent = 100,
     .any_tag_percent = 100},
    {.name = "one_key", .messages = 1024, .receives = 1024, .tags = 1, .sources = 1},
    {.name = "one_key_and_wildcards",
     .messages = 1024,
     .receives = 1024,
     .tags = 1,
     .sources = 1,
     .any_source_percent = 20,
     .any_tag_percent = 20},
    {.name = "long_chains",
     .messages = 1024,
     .receives = 1024,
     .tags = 7,
     .sources = 4,
     .any_source_percent = 3,
     .any_tag_percent = 3},
};
class LargeMatching : public testing::TestWithParam<TrafficCase> {};

TEST_P(LargeMatching, EqualsReference) {
  for (const Way& way : {kByWholeBlock, kByHalfABlock})
    EXPECT_EQ(run_and_compare(way, draw(GetParam(), way.threads), 1), "") << way.threads;
}

INSTANTIATE_TEST_SUITE_P(Traffic, LargeMatching, testing::ValuesIn(kLarge),
                         [](const auto& at) { return at.param.name; });

TEST(MatchingAdversary, ChainsOfWildcards) {
  for (const std::uint32_t length : {3U, 40U, 128U})
    EXPECT_EQ(run_and_compare(kByBlock, chain(length), length), "") << length;
}

TEST(MatchingAdversary, AllKeysInOneBucket) {
  for (const std::uint32_t count : {5U, 100U, 256U}) {
    const Traffic traffic = one_bucket(count, device::detail::log2_above(2 * count));
    EXPECT_EQ(run_and_compare(kByBlock, traffic, count), "") << count;
  }
}

TEST(MatchingAdversary, EqualReceives_MatchAllMessages) {
  Traffic traffic = draw({"", 256, 0, 1, 1}, 1);
  traffic.receives.assign(256, {any_tag, any_source, 0});
  EXPECT_EQ(run_and_compare(kByBlock, traffic, 1), "");
  traffic.receives.assign(256, {0, 0, 0});
  EXPECT_EQ(run_and_compare(kByBlock, traffic, 2), "");
}

TEST(MatchingAdversary, ExtremesOfTheRanges) {
  Traffic traffic;
  traffic.messages = {{0, 0, 0}, {device::kMaxTag, device::kMaxSource, 0xFFFF}, {0, 0, 0xFFFF}};
  traffic.receives = {{any_tag, any_source, 0xFFFF},
                      {device::kMaxTag, device::kMaxSource, 0xFFFF},
                      {any_tag, any_source, 0xFFFF},
                      {any_tag, any_source, 0}};
  EXPECT_EQ(run_and_compare(kByBlock, traffic, 1), "");
  EXPECT_EQ(run_match(kByBlock, traffic, 1).matched_message,
            (std::vector<std::uint32_t>{1, kNone, 2, 0, kPoison}));
}

struct BadCase {
  const char* name;
  bool of_receive;
  envelope bad;
  match_status status;
};
class BadMatching : public testing::TestWithParam<BadCase> {};

TEST_P(BadMatching, WrongEnvelope_MatchesNothing) {
  Traffic traffic = draw({"", 100, 90, 4, 4, 1, 10, 10}, 5);
  (GetParam().of_receive ? traffic.receives : traffic.messages)[67] = GetParam().bad;
  const Matched matched = run_match(kByBlock, traffic, 9);
  ASSERT_EQ(matched.error, "");
  EXPECT_EQ(matched.outcome.status, GetParam().status);
  EXPECT_EQ(matched.outcome.index, 67U);
  EXPECT_EQ(matched.outcome.matches, 0U);
  for (std::size_t i = 0; i < 90; ++i) EXPECT_EQ(matched.matched_message[i], kNone);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(matched.matched_receive[i], kNone);
}

INSTANTIATE_TEST_SUITE_P(Input, BadMatching,
                         testing::Values(BadCase{.name = "tag",
                                                 .of_receive = false,
                                                 .bad = {0x80000000, 0, 0},
                                                 .status = match_status::message_tag},
                                         BadCase{.name = "any_tag",
                                                 .of_receive = false,
                                                 .bad = {any_tag, 0, 0},
                                                 .status = match_status::message_tag},
                                         BadCase{.name = "any_source",
                                                 .of_receive = false,
                                                 .bad = {1, any_source, 0},
                                                 .status = match_status::message_source},
                                         BadCase{.name = "tag_of_a_receive",
                                                 .of_receive = true,
                                                 .bad = {0x80000000, 0, 0},
                                                 .status = match_status::receive_tag},
                                         BadCase{.name = "other_tag_of_a_receive",
                                                 .of_receive = true,
                                                 .bad = {0xFFFFFFFE, 0, 0},
                                                 .status = match_status::receive_tag}),
                         [](const auto& at) { return at.param.name; });

TEST(BadMatching, MoreThanTheCapacityIsFull) {
  for (const bool receives : {false, true}) {
    const Traffic traffic = draw({"", receives ? 3U : 257U, receives ? 257U : 3U, 4, 4}, 5);
    const Matched matched = run_match(kByBlock, traffic, 9);
    ASSERT_EQ(matched.error, "");
    EXPECT_EQ(matched.outcome.status, match_status::full);
    EXPECT_EQ(matched.matched_message[0], kNone);
    EXPECT_EQ(matched.matched_message.back(), kPoison);
  }
}

class MatchMutant : public testing::TestWithParam<match_mutant> {
 protected:
  void TearDown() override { active_mutant<match_mutant> = match_mutant::none; }
};

TEST_P(MatchMutant, MakesRunsFail) {
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 2; ++seed)
    for (const char* name : {"keys", "some_wildcards", "two_keys_and_wildcards"})
      for (const TrafficCase& each : kTraffic) {
        if (std::string(each.name) != name) continue;
        active_mutant<match_mutant> = match_mutant::none;
        const Traffic traffic = draw(each, seed);
        active_mutant<match_mutant> = GetParam();
        failures += run_and_compare(kByBlock, traffic, seed).empty() ? 0 : 1;
      }
  EXPECT_GE(failures, 2);
}

INSTANTIATE_TEST_SUITE_P(
    Each, MatchMutant,
    testing::Values(match_mutant::any_order_of_receives, match_mutant::any_order_of_messages,
                    match_mutant::any_order_of_long_groups, match_mutant::wildcards_overtake,
                    match_mutant::keys_do_not_shift, match_mutant::shift_is_one_early,
                    match_mutant::no_any_any, match_mutant::looks_are_stale,
                    match_mutant::first_of_a_look, match_mutant::no_barrier_of_tables,
                    match_mutant::no_barrier_of_rows, match_mutant::no_barrier_of_bits,
                    match_mutant::no_barrier_of_rounds, match_mutant::long_is_not_noticed,
                    match_mutant::taken_keep_their_bits, match_mutant::mixed_wildcards));

}  // namespace
}  // namespace polypath::test
