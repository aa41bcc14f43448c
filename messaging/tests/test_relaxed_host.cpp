// Matching without a source wildcard, and without order: against MPI's rule taken literally, and
// against what can be paired by key; over hostile schedules; and each planted defect is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "polypath/device/detail/grid_barrier.cuh"
#include "polypath/device/detail/key_table.cuh"
#include "polypath/device/detail/source_partition.cuh"
#include "polypath/device/match_partitioned.cuh"
#include "relaxed_runs.hpp"

namespace polypath::test {
namespace {

using device::grid_mutant;
using device::hash_mutant;
using device::match_status;
using device::partition_mutant;
using device::split_mutant;

/// Keys that share the first eight slots of `levels` hashes, in a table of 2^log2.
Traffic one_eight(std::uint32_t count, unsigned log2, std::uint64_t seed, unsigned levels) {
  Traffic traffic;
  for (std::uint32_t tag = 0; traffic.messages.size() < count; ++tag) {
    const envelope header{tag, 7, 3};
    bool is_alike = true;
    for (unsigned level = 0; level < levels; ++level)
      is_alike = is_alike && device::first_slot_of(bits_of(header), seed, level, log2) / 8 == level;
    if (is_alike) traffic.messages.push_back(header);
  }
  traffic.receives.assign(traffic.messages.rbegin(), traffic.messages.rend());
  return traffic;
}

/// Unique keys that share the first four slots of `levels` hashes, in a block's table of 2^log2.
Traffic one_four(std::uint32_t count, unsigned log2, std::uint64_t seed, unsigned levels) {
  const device::tag_seeds seeds = device::tag_seeds_of(seed);
  Traffic traffic;
  for (std::uint32_t tag = 0; traffic.messages.size() < count; ++tag) {
    const envelope header{tag, 7, 3};
    const std::uint64_t key = bits_of(header);
    bool is_alike = device::tag_hash_of(key, seeds) >> (64 - log2) < 4;
    for (unsigned level = 1; level < levels; ++level)
      is_alike = is_alike && device::first_slot_of(key, seeds.low, level, log2) / 4 == level;
    if (is_alike) traffic.messages.push_back(header);
  }
  traffic.receives.assign(traffic.messages.rbegin(), traffic.messages.rend());
  return traffic;
}
/// Unique keys whose words in a block's table have the same tag.
Traffic one_tag(std::uint32_t count, std::uint64_t seed) {
  const device::tag_seeds seeds = device::tag_seeds_of(seed);
  const auto low = static_cast<std::uint32_t>(seeds.low);
  std::uint32_t inverse = low;  // modulo 2^32: each turn doubles the bits that are right
  for (int i = 0; i < 5; ++i) inverse *= 2 - low * inverse;
  Traffic traffic;
  for (std::uint32_t hash = 0; traffic.messages.size() < count; ++hash) {
    const envelope header{hash * inverse, 0, 0};
    if (header.tag <= device::kMaxTag) traffic.messages.push_back(header);
  }
  traffic.receives.assign(traffic.messages.rbegin(), traffic.messages.rend());
  return traffic;
}

class Partitioned : public testing::TestWithParam<TrafficCase> {};

TEST_P(Partitioned, ByAWarpAndByABlock) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Traffic traffic = draw(GetParam(), seed);
    for (const By by : {By::warp, By::block})
      ASSERT_EQ(check_ordered(traffic, run_group("polypath_test_partitioned", by, traffic, seed)),
                "")
          << "seed " << seed << ", by a block: " << (by == By::block);
  }
}
TEST_P(Partitioned, FromOneMixedStream) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Traffic traffic = draw(GetParam(), seed);
    for (const unsigned bits : {1U, 3U, 9U})
      ASSERT_EQ(check_ordered(traffic, run_split(traffic, bits, seed)), "")
          << "seed " << seed << ", " << bits << " bits";
  }
}
INSTANTIATE_TEST_SUITE_P(Relaxed, Partitioned, testing::ValuesIn(kOrdered),
                         [](const auto& at) { return at.param.name; });

TEST(Mixed, ManySourcesInSeveralPieces) {
  constexpr TrafficCase kCase{.name = "",
                              .messages = 1500,
                              .receives = 1400,
                              .tags = 3,
                              .sources = 300,
                              .communicators = 2,
                              .any_tag_percent = 10};
  for (const unsigned bits : {5U, 8U, 10U, 16U}) {
    const Traffic traffic = draw(kCase, bits);
    ASSERT_EQ(check_ordered(traffic, run_split(traffic, bits, bits)), "") << bits << " bits";
  }
}
TEST(Mixed, LongSourceAmongOthers_IsMatched) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    Traffic traffic = shuffled(1100, seed);
    const Traffic others = draw({"", 300, 310, 5, 40, 1, 0, 10}, seed);
    traffic.messages.insert(traffic.messages.end(), others.messages.begin(), others.messages.end());
    traffic.receives.insert(traffic.receives.begin(), others.receives.begin(),
                            others.receives.end());
    traffic.receives[500].tag = any_tag;
    Traffic bad = traffic;
    bad.receives[501].source = any_source;
    for (const bool at_once : {false, true}) {
      const auto run = [&](const Traffic& batch, std::uint32_t capacity) {
        return run_grid<device::partitioned_workspace>("partitioned", batch, capacity, seed,
                                                       at_once);
      };
      ASSERT_EQ(check_ordered(traffic, run(traffic, 2000)), "");
      ASSERT_EQ(check_refused(traffic, run(traffic, 1399), match_status::full), "");
      ASSERT_EQ(check_ordered(others, run(others, 1200)), "");
      ASSERT_EQ(check_refused(bad, run(bad, 2000), match_status::wildcard), "");
    }
  }
}
TEST(Mixed, SingleSource_IsMatched) {
  const Traffic traffic = shuffled(300, 1);
  EXPECT_EQ(check_ordered(traffic, run_split(traffic, 9, 1)), "");
}
/// One source for each of `counts`, with that number of messages and receives.
Traffic sources_of(const std::vector<std::uint32_t>& counts, std::uint64_t seed) {
  Traffic traffic;
  for (std::size_t source = 0; source < counts.size(); ++source)
    for (std::uint32_t i = 0; i < counts[source]; ++i)
      traffic.messages.push_back({i / 2, static_cast<std::uint16_t>(source), 0});
  std::mt19937_64 random(seed);
  std::ranges::shuffle(traffic.messages, random);
  traffic.receives = traffic.messages;
  std::ranges::shuffle(traffic.receives, random);
  return traffic;
}
TEST(Mixed, UpToWhatARoomHasAndAWarpAndABlockAndMore) {
  constexpr std::uint32_t kRoom = device::split_view::kRoom;
  for (const std::uint32_t most : {64U, 65U, kRoom, kRoom + 1, 2 * kRoom, 2 * kRoom + 1}) {
    const Traffic traffic = sources_of({most, 1, 64, 0, 40, most - 1}, most);
    for (const bool at_once : {false, true})
      ASSERT_EQ(check_ordered(traffic, run_grid<device::partitioned_workspace>(
                                           "partitioned", traffic, 800, most, at_once)),
                "")
          << most;
  }
}
TEST(Mixed, SourceWithoutRoom_IsMatched) {  // on one side alone
  for (const bool is_receive : {false, true}) {
    Traffic traffic = sources_of({50, 60, 128, 0, 3}, 1);
    (is_receive ? traffic.receives : traffic.messages).push_back({5, 2, 0});
    EXPECT_EQ(check_ordered(traffic, run_split(traffic, 9, 1)), "");
  }
}
TEST(Mixed, LongAndOneSidedSources_AreMatched) {
  Traffic traffic = shuffled(250, 1);
  for (std::uint32_t i = 0; i < 300; ++i) {
    traffic.messages.push_back({i, 1, 5});  // one side alone is never long
    traffic.receives.push_back({i, 2, 5});
  }
  EXPECT_EQ(check_ordered(traffic, run_split(traffic, 9, 1)), "");
}

// ---- by one launch, whose blocks meet ----

class Together : public testing::TestWithParam<TrafficCase> {};

TEST_P(Together, EqualsPhaseByPhase) {
  const Traffic traffic = draw(GetParam(), 1);
  for (const bool at_once : {false, true})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      ASSERT_EQ(check_ordered(traffic,
                              run_grid<device::mpi_workspace>("mpi", traffic, 400, seed, at_once)),
                "")
          << seed;
      if (GetParam().any_source_percent != 0) continue;
      ASSERT_EQ(check_ordered(traffic, run_grid<device::partitioned_workspace>(
                                           "partitioned", traffic, 400, seed, at_once)),
                "")
          << seed;
    }
}
constexpr TrafficCase kTogether[] = {
    {.name = "keys", .messages = 300, .receives = 280, .tags = 16, .sources = 8},
    {.name = "few_of_a_key", .messages = 300, .receives = 300, .tags = 40, .sources = 4},
    {.name = "once_each", .messages = 300, .receives = 300, .tags = 9999, .sources = 2},
    {.name = "some_wildcards",
     .messages = 200,
     .receives = 200,
     .tags = 8,
     .sources = 4,
     .communicators = 2,
     .any_source_percent = 10,
     .any_tag_percent = 10},
    {.name = "any_tag",
     .messages = 300,
     .receives = 300,
     .tags = 8,
     .sources = 40,
     .any_tag_percent = 10},
    {.name = "one_key", .messages = 120, .receives = 130, .tags = 1, .sources = 1},
    {.name = "more_than_a_warp_has", .messages = 200, .receives = 200, .tags = 1, .sources = 1},
    {.name = "more_than_a_block_has", .messages = 300, .receives = 300, .tags = 1, .sources = 1},
    {.name = "receives_alone", .messages = 0, .receives = 200, .tags = 4, .sources = 4},
    {.name = "messages_alone", .messages = 200, .receives = 0, .tags = 4, .sources = 4},
};
INSTANTIATE_TEST_SUITE_P(Grid, Together, testing::ValuesIn(kTogether),
                         [](const auto& at) { return at.param.name; });

class Hashed : public testing::TestWithParam<TrafficCase> {};

TEST_P(Hashed, ByAWarpAndByABlock) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Traffic traffic = draw(GetParam(), seed);
    const Traffic before = draw(GetParam(), seed + 100);
    for (const By by : {By::warp, By::block})
      ASSERT_EQ(check_by_key(traffic,
                             run_group("polypath_test_hashed", by, traffic, seed, &before, seed)),
                "")
          << "seed " << seed << ", by a block: " << (by == By::block);
  }
}
TEST_P(Hashed, ByTheWholeGpu) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Traffic traffic = draw(GetParam(), seed);
    const Traffic before = draw(GetParam(), seed + 100);
    ASSERT_EQ(check_by_key(traffic, run_table(false, traffic, seed, &before, seed)), "") << seed;
  }
}
INSTANTIATE_TEST_SUITE_P(Relaxed, Hashed, testing::ValuesIn(kByKey),
                         [](const auto& at) { return at.param.name; });

TEST(HashedUnique, EachKeyOnce) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Traffic traffic = shuffled(250, seed, 7);
    for (std::uint32_t i = 0; i < 40; ++i) traffic.receives[i].tag += 1000;  // of no message
    const Traffic before = shuffled(250, seed + 50, 3);
    for (const By by : {By::warp, By::block})
      ASSERT_EQ(check_by_key(traffic, run_group("polypath_test_hashed_unique", by, traffic, seed,
                                                &before, seed)),
                "");
    ASSERT_EQ(check_by_key(traffic, run_table(true, traffic, seed, &before, seed)), "");
  }
}
TEST(HashedUnique, TwoOfAKeyAreRefused) {
  for (const bool of_messages : {true, false}) {
    Traffic traffic = shuffled(100, 3);
    (of_messages ? traffic.messages : traffic.receives)[70] =
        (of_messages ? traffic.messages : traffic.receives)[20];
    const match_status why =
        of_messages ? match_status::message_twice : match_status::receive_twice;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      for (const By by : {By::warp, By::block})
        EXPECT_EQ(check_refused(traffic,
                                run_group("polypath_test_hashed_unique", by, traffic, seed), why),
                  "");
      EXPECT_EQ(check_refused(traffic, run_table(true, traffic, seed), why), "");
    }
  }
}

TEST(Floods, KeysOfOneEight) {
  for (const unsigned levels : {1U, 2U}) {
    const Traffic traffic = one_eight(200, 9, 99, levels);
    ASSERT_EQ(check_by_key(traffic,
                           run_group("polypath_test_hashed", By::block, traffic, 1, nullptr, 99)),
              "");
    for (const bool unique : {false, true})
      ASSERT_EQ(check_by_key(traffic, run_table(unique, traffic, 1, nullptr, 99)), "");
  }
}

TEST(Floods, UniqueKeysOfOneFourAndOfOneTag) {
  for (const Traffic& traffic :
       {one_four(200, 10, 99, 1), one_four(200, 10, 99, 2), one_tag(250, 99)}) {
    ASSERT_EQ(device::table_view::slots_log2_for(2 * 250), 10U);
    Traffic others = traffic;
    for (std::size_t i = 0; i < 100; ++i) std::swap(others.receives[i], others.receives[i + 100]);
    for (std::size_t i = 0; i < 50; ++i) others.receives[i * 2].tag ^= 1;  // of no message
    for (const By by : {By::warp, By::block}) {
      ASSERT_EQ(check_by_key(traffic,
                             run_group("polypath_test_hashed_unique", by, traffic, 1, nullptr, 99)),
                "");
      ASSERT_EQ(check_by_key(others,
                             run_group("polypath_test_hashed_unique", by, others, 2, &traffic, 99)),
                "");
    }
    others.messages[170] = others.messages[13];
    ASSERT_EQ(
        check_refused(others,
                      run_group("polypath_test_hashed_unique", By::block, others, 3, nullptr, 99),
                      match_status::message_twice),
        "");
  }
}

// ---- what must not be matched ----

struct BadCase {
  const char* name;
  match_status why;
  bool is_receive;
  envelope bad;
  bool of_partitioned = true;
  bool of_hashed = true;
};
constexpr BadCase kBad[] = {
    {.name = "message_tag",
     .why = match_status::message_tag,
     .is_receive = false,
     .bad = {0x80000000, 0, 5}},
    {.name = "message_of_any_tag",
     .why = match_status::message_tag,
     .is_receive = false,
     .bad = {any_tag, 0, 5}},
    {.name = "message_source",
     .why = match_status::message_source,
     .is_receive = false,
     .bad = {1, any_source, 5}},
    {.name = "receive_tag",
     .why = match_status::receive_tag,
     .is_receive = true,
     .bad = {0x80000000, 0, 5}},
    {.name = "any_source",
     .why = match_status::wildcard,
     .is_receive = true,
     .bad = {3, any_source, 5}},
    {.name = "any_tag",
     .why = match_status::wildcard,
     .is_receive = true,
     .bad = {any_tag, 0, 5},
     .of_partitioned = false},
};

class Refused : public testing::TestWithParam<BadCase> {};

TEST_P(Refused, AndNothingIsMatched) {
  const BadCase& test_case = GetParam();
  Traffic traffic = shuffled(100, 5);
  (test_case.is_receive ? traffic.receives : traffic.messages)[77] = test_case.bad;
  const auto check = [&](const Results& results) {
    EXPECT_EQ(check_refused(traffic, results, test_case.why), "");
    EXPECT_EQ(results.outcome.index, 77U);
  };
  if (test_case.of_partitioned) {
    check(run_group("polypath_test_partitioned", By::warp, traffic, 1));
    check(run_group("polypath_test_partitioned", By::block, traffic, 1));
    check(run_split(traffic, 3, 1));
  }
  if (test_case.of_hashed)
    for (const bool unique : {false, true}) {
      const char* const kernel = unique ? "polypath_test_hashed_unique" : "polypath_test_hashed";
      check(run_group(kernel, By::warp, traffic, 1));
      check(run_group(kernel, By::block, traffic, 1));
      check(run_table(unique, traffic, 1));
    }
}
INSTANTIATE_TEST_SUITE_P(Relaxed, Refused, testing::ValuesIn(kBad),
                         [](const auto& at) { return at.param.name; });

TEST(Refusals, MoreThanTheCapacity) {
  const Traffic traffic = shuffled(520, 1);
  for (const char* const kernel :
       {"polypath_test_partitioned", "polypath_test_hashed", "polypath_test_hashed_unique"})
    EXPECT_EQ(check_refused(traffic, run_group(kernel, By::block, traffic, 1), match_status::full),
              "");
}

TEST(Refusals, TooFewSlots_GiveFull) {
  const Traffic traffic = shuffled(100, 1);
  EXPECT_EQ(check_refused(traffic, run_table(false, traffic, 1, nullptr, 0, 6), match_status::full),
            "");
  EXPECT_EQ(check_by_key(traffic, run_table(false, traffic, 1, nullptr, 0, 7)), "") << "enough";
}

// ---- mutants ----

/// How many of 300 seeds show a defect, up to three.
int found_by(const std::function<std::string(std::uint64_t)>& run) {
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 3; ++seed)
    failures += run(seed).empty() ? 0 : 1;
  return failures;
}

template <typename Fault>
class MutantTest : public testing::TestWithParam<Fault> {
 protected:
  void SetUp() override { active_mutant<Fault> = this->GetParam(); }
  void TearDown() override { active_mutant<Fault> = Fault::none; }
};

class PartitionMutant : public MutantTest<partition_mutant> {};
TEST_P(PartitionMutant, MakesRunsFail) {
  constexpr TrafficCase kCase{
      .name = "", .messages = 300, .receives = 300, .tags = 5, .sources = 3, .any_tag_percent = 10};
  EXPECT_GE(found_by([&](std::uint64_t seed) {
              const Traffic traffic = draw(kCase, seed);
              return check_ordered(
                  traffic, run_group("polypath_test_partitioned", By::block, traffic, seed));
            }),
            3);
}
INSTANTIATE_TEST_SUITE_P(
    Relaxed, PartitionMutant,
    testing::Values(partition_mutant::taken_twice, partition_mutant::last_not_first,
                    partition_mutant::tag_alone, partition_mutant::all_ranks_alike,
                    partition_mutant::kinds_at_once, partition_mutant::matched_taken_anew,
                    partition_mutant::no_barrier));

class SplitMutant : public MutantTest<split_mutant> {};
TEST_P(SplitMutant, MakesRunsFail) {
  constexpr TrafficCase kCase{.name = "",
                              .messages = 900,
                              .receives = 900,
                              .tags = 2,
                              .sources = 12,
                              .any_tag_percent = 10};
  constexpr TrafficCase kCrowded{
      .name = "", .messages = 900, .receives = 900, .tags = 2, .sources = 5, .any_tag_percent = 10};
  constexpr TrafficCase kOneSource{
      .name = "", .messages = 120, .receives = 120, .tags = 2, .sources = 1, .any_tag_percent = 10};
  const split_mutant fault = GetParam();
  const bool is_crowded = fault == split_mutant::long_in_no_order ||
                          fault == split_mutant::crowded_unnoticed ||
                          fault == split_mutant::places_given_twice;
  const TrafficCase& test_case = is_crowded                                  ? kCrowded
                                 : fault == split_mutant::warp_counts_as_one ? kOneSource
                                                                             : kCase;
  EXPECT_GE(found_by([&](std::uint64_t seed) {
              const Traffic traffic = draw(test_case, seed);
              return check_ordered(traffic, run_split(traffic, 9, seed));
            }),
            3);
}
INSTANTIATE_TEST_SUITE_P(Relaxed, SplitMutant,
                         testing::Values(split_mutant::in_no_order, split_mutant::long_in_no_order,
                                         split_mutant::warp_counts_as_one,
                                         split_mutant::rooms_given_twice,
                                         split_mutant::crowded_unnoticed,
                                         split_mutant::places_given_twice));

TEST(Meetings, AllSeeWhatAllStored) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) ASSERT_EQ(run_meetings(seed), "") << seed;
}
class GridMutant : public MutantTest<grid_mutant> {};
TEST_P(GridMutant, MakesRunsFail) { EXPECT_GE(found_by(run_meetings), 3); }
INSTANTIATE_TEST_SUITE_P(Relaxed, GridMutant,
                         testing::Values(grid_mutant::no_release, grid_mutant::no_acquire,
                                         grid_mutant::does_not_wait,
                                         grid_mutant::ends_before_the_others,
                                         grid_mutant::first_block_is_as_others));

class HashMutant : public MutantTest<hash_mutant> {};
TEST_P(HashMutant, MakesRunsFail) {
  constexpr TrafficCase kCase{
      .name = "", .messages = 240, .receives = 240, .tags = 40, .sources = 3};
  EXPECT_GE(found_by([&](std::uint64_t seed) {
              const Traffic traffic = draw(kCase, seed);
              const Traffic before = draw(kCase, seed + 100);
              return check_by_key(traffic, run_group("polypath_test_hashed", By::block, traffic,
                                                     seed, &before, seed));
            }),
            3);
}
INSTANTIATE_TEST_SUITE_P(Relaxed, HashMutant,
                         testing::Values(hash_mutant::counts_not_cleared,
                                         hash_mutant::entered_unasked,
                                         hash_mutant::first_slot_alone,
                                         hash_mutant::one_message_a_key,
                                         hash_mutant::all_ranks_alike, hash_mutant::low_half_alone,
                                         hash_mutant::no_barrier));

class UniqueMutant : public MutantTest<hash_mutant> {};
TEST_P(UniqueMutant, MakesRunsFail) {
  const auto run = [](const Traffic& traffic, std::uint64_t seed) {
    return run_group("polypath_test_hashed_unique", By::block, traffic, seed, &traffic, seed);
  };
  EXPECT_GE(found_by([&](std::uint64_t seed) {
              const Traffic traffic = GetParam() == hash_mutant::tag_alone ? one_tag(240, seed)
                                      : GetParam() == hash_mutant::first_slots_alone
                                          ? one_four(10, 8, seed, 1)
                                          : shuffled(240, seed, 3);
              if (GetParam() != hash_mutant::second_unnoticed)
                return check_by_key(traffic, run(traffic, seed));
              Traffic twice = traffic;
              twice.receives[100] = twice.receives[seed];
              return check_refused(twice, run(twice, seed), match_status::receive_twice);
            }),
            3);
}
INSTANTIATE_TEST_SUITE_P(Relaxed, UniqueMutant,
                         testing::Values(hash_mutant::counts_not_cleared,
                                         hash_mutant::entered_unasked, hash_mutant::tag_alone,
                                         hash_mutant::first_slots_alone,
                                         hash_mutant::second_unnoticed, hash_mutant::no_barrier));

}  // namespace
}  // namespace polypath::test
