// Matching by the whole GPU, and what is carried over, over hostile schedules: kernels one after
// another on a stream, of several blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "matching_cases.hpp"
#include "messaging/kernels/leftover_mutants.h"
#include "messaging/kernels/matching_args.h"
#include "polypath/device/detail/wildcard_scan.cuh"
#include "polypath/device/matcher_mpi.cuh"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using device::match_outcome;
using device::match_pair;
using device::match_status;

constexpr std::uint32_t kPoison = 0xABADCAFE;

/// Keys that meet in one slot of the table for `count` of them, where the seed is 0.
std::vector<envelope> meeting_keys(std::uint32_t count) {
  const std::uint32_t slots_log2 = device::detail::log2_above(2 * count);
  std::vector<envelope> keys;
  for (std::uint32_t tag = 0; keys.size() < count; ++tag) {
    const envelope key{tag, 3, 1};
    if (device::first_slot_of(device::bits_of(key), 0, 0, slots_log2) == 5) keys.push_back(key);
  }
  return keys;
}

/// Loads and stores of the tables, while as many messages and receives of these keys are entered.
std::size_t accesses_to_enter(const std::vector<envelope>& keys, std::uint64_t seed) {
  const auto count = static_cast<std::uint32_t>(keys.size());
  std::vector<std::uint64_t> workspace(device::mpi_workspace::bytes(count) / 8 + 1);
  std::vector<std::uint32_t> results(keys.size());
  MatchState state{};
  const MatchGridArgs args{{keys.data(), count, count, keys.data(), results.data(), nullptr, seed},
                           reinterpret_cast<unsigned char*>(workspace.data()),
                           count,
                           0,
                           nullptr,
                           &state};
  std::size_t accesses = 0;
  simt::RunOptions options;
  const auto begin = reinterpret_cast<std::uintptr_t>(workspace.data());
  options.access = [&](std::uintptr_t address, std::size_t, bool) {
    if (address - begin < workspace.size() * 8) ++accesses;
  };
  std::vector<simt::Launch> row;
  for (std::uint32_t phase = 0; phase <= 2; ++phase)
    row.push_back(simt::launch("polypath_match_grid_mpi", 0, 2, 64, args, phase));
  EXPECT_EQ(simt::run({row}, options), "");
  return accesses;
}

TEST(MatchingSeed, CollidingKeys_AreNoSlowerWithSeed) {
  constexpr std::uint32_t kKeys = 256;
  std::vector<envelope> others;
  for (std::uint32_t tag = 0; tag < kKeys; ++tag) others.push_back({tag, 3, 1});
  const std::vector<envelope> colliding = meeting_keys(kKeys);
  const std::size_t usual = accesses_to_enter(others, 0);
  EXPECT_GT(accesses_to_enter(colliding, 0), 5 * usual) << "they were made for this seed";
  EXPECT_LT(accesses_to_enter(colliding, 0x9D5C3FB1E2A74681), usual + usual / 4);
}

/// By one block, or by the whole GPU: a launch a phase, or one.
enum class By { block, phases, together };

class CarryMemory {
 public:
  explicit CarryMemory(std::uint32_t capacity)
      : capacity_(capacity),
        envelopes_(2 * (capacity + kBehind), envelope{kPoison, 7, 7}),
        numbers_(2 * (capacity + kBehind), kPoison),
        words_(2 * (capacity + kBehind), kPoison),
        workspace_(device::mpi_workspace::bytes(capacity) / 8 + 1, 0xC3C3C3C3C3C3C3C3) {}

  /// One batch. Empty, or what went wrong.
  std::string next(const std::vector<envelope>& messages, const std::vector<envelope>& receives,
                   By by, std::uint64_t seed) {
    pairs.assign(capacity_ + kBehind, {kPoison, kPoison});
    const std::uint32_t second = capacity_ + kBehind;
    const MatchBuffers buffers{envelopes_.data(), envelopes_.data() + second,
                               numbers_.data(),   numbers_.data() + second,
                               words_.data(),     words_.data() + second};
    const MatchCarryArgs carry{&state,
                               buffers,
                               messages.data(),
                               receives.data(),
                               static_cast<std::uint32_t>(messages.size()),
                               static_cast<std::uint32_t>(receives.size()),
                               capacity_,
                               0,
                               pairs.data(),
                               &outcome};
    const device::match_batch batch{
        buffers.messages, 0, 0, buffers.receives, buffers.matched_message, buffers.matched_receive};
    std::vector<simt::Launch> row{simt::launch("polypath_match_append", 0, 2, 64, carry)};
    if (by != By::block) {
      const MatchGridArgs args{batch,          reinterpret_cast<unsigned char*>(workspace_.data()),
                               capacity_,      1,
                               &state.outcome, &state};
      if (by == By::together) row.push_back(simt::launch("polypath_match_all_mpi", 0, 3, 64, args));
      for (std::uint32_t phase = 0; by == By::phases && phase < device::mpi_workspace::kPhases;
           ++phase) {
        const bool by_one = device::mpi_workspace::runs_in_one_warp(phase);
        row.push_back(simt::launch("polypath_match_grid_mpi", 0, by_one ? 1 : 3, by_one ? 32 : 64,
                                   args, phase));
      }
      if (by == By::phases)
        row.push_back(simt::launch("polypath_match_outcome_mpi", 0, 1, 32, args));
    } else {
      const MatchQueuesArgs args{batch, nullptr, nullptr,        1,     capacity_,
                                 1,     0,       &state.outcome, &state};
      row.push_back(simt::launch("polypath_match_queues_mpi", 0, 1, 96, args));
      row.back().shared_bytes = sizeof(device::mpi_storage<kMaxPerQueue>);
    }
    row.push_back(simt::launch("polypath_match_keep", 0, 1, 128, carry));
    simt::RunOptions options;
    options.seed = seed;
    const std::string error = simt::run({row}, options);
    return error.empty() && !is_whole_behind_the_end() ? "written behind the end" : error;
  }

  MatchState state{};
  match_outcome outcome{};
  std::vector<match_pair> pairs;

 private:
  static constexpr std::uint32_t kBehind = 8;
  [[nodiscard]] bool is_whole_behind_the_end() const {
    for (std::uint32_t part = 0; part < 2; ++part)
      for (std::uint32_t i = 0; i < kBehind; ++i) {
        const std::size_t at = part * (capacity_ + kBehind) + capacity_ + i;
        if (envelopes_[at].tag != kPoison || numbers_[at] != kPoison || words_[at] != kPoison)
          return false;
      }
    return true;
  }

  std::uint32_t capacity_;
  std::vector<envelope> envelopes_;
  std::vector<std::uint64_t> numbers_;
  std::vector<std::uint32_t> words_;
  std::vector<std::uint64_t> workspace_;
};

/// Traffic cut into batches at random, with batches between them that are refused. Empty, or what
/// was wrong.
std::string run_case(const TrafficCase& test_case, By by, std::uint64_t seed) {
  constexpr std::uint32_t kCapacity = 256;
  const Traffic traffic = draw(test_case, seed);
  std::mt19937_64 random(seed);
  CarryMemory memory(kCapacity);
  std::vector<std::uint32_t> matched_message(traffic.receives.size(), kNone);
  std::size_t message = 0;
  std::size_t receive = 0;
  std::uint32_t matches = 0;
  while (message < traffic.messages.size() || receive < traffic.receives.size()) {
    const auto cut = [&](const std::vector<envelope>& from, std::size_t& at) {
      const std::size_t count = std::min<std::size_t>(from.size() - at, random() % 70);
      std::vector<envelope> part(from.begin() + static_cast<std::ptrdiff_t>(at),
                                 from.begin() + static_cast<std::ptrdiff_t>(at + count));
      at += count;
      return part;
    };
    const std::size_t messages_before = message - matches;
    const std::size_t receives_before = receive - matches;
    if (random() % 3 == 0) {
      const bool is_full = random() % 2 == 0;
      std::vector<envelope> bad(is_full ? kCapacity - messages_before + 1 : 3, {1, 1, 1});
      if (!is_full) bad[2].source = any_source;
      std::string error = memory.next(bad, {{1, 1, 1}}, by, random());
      if (!error.empty()) return error;
      const auto expected = is_full ? match_status::full : match_status::message_source;
      if (memory.outcome.status != expected) return "another status";
      if (memory.outcome.index != (is_full ? 0U : 2U)) return "another index";
      if (memory.outcome.unmatched_messages != messages_before ||
          memory.outcome.unmatched_receives != receives_before)
        return "a refused batch changed what is left";
    }
    const std::vector<envelope> messages = cut(traffic.messages, message);
    const std::vector<envelope> receives = cut(traffic.receives, receive);
    const std::string error = memory.next(messages, receives, by, random());
    if (!error.empty()) return error;
    if (memory.outcome.status != match_status::done) return "not done";
    for (std::uint32_t i = 0; i < memory.pairs.size(); ++i) {
      const match_pair& pair = memory.pairs[i];
      if (i >= memory.outcome.matches) {
        if (pair.message != kPoison || pair.receive != kPoison) return "written behind the pairs";
        continue;
      }
      if (pair.receive >= receive || pair.message >= message) return "no such numbers";
      if (i > 0 && pair.receive <= memory.pairs[i - 1].receive) return "pairs out of order";
      if (matched_message[pair.receive] != kNone) return "a receive twice";
      matched_message[pair.receive] = static_cast<std::uint32_t>(pair.message);
    }
    matches += memory.outcome.matches;
    if (memory.outcome.unmatched_messages != message - matches ||
        memory.outcome.unmatched_receives != receive - matches)
      return "counts are wrong";
  }
  if (memory.state.matches != matches) return "the sum of matches is wrong";
  return matched_message == match_literally(traffic, seed) ? "" : "not the literal rule";
}

class Carrying : public testing::TestWithParam<TrafficCase> {};

TEST_P(Carrying, AnyCut_EqualsReference) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    for (const By by : {By::block, By::phases, By::together})
      ASSERT_EQ(run_case(GetParam(), by, seed), "") << seed << ", " << static_cast<int>(by);
}

INSTANTIATE_TEST_SUITE_P(Traffic, Carrying, testing::ValuesIn(kTraffic),
                         [](const auto& at) { return at.param.name; });

class LeftoverMutant : public testing::TestWithParam<leftover_mutant> {
 protected:
  void TearDown() override { active_mutant<leftover_mutant> = leftover_mutant::none; }
};

TEST_P(LeftoverMutant, MakesRunsFail) {
  active_mutant<leftover_mutant> = GetParam();
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 2; ++seed)
    failures +=
        run_case(kTraffic[1 + seed % 5], seed % 2 == 0 ? By::together : By::block, seed).empty()
            ? 0
            : 1;
  EXPECT_GE(failures, 2);
}

INSTANTIATE_TEST_SUITE_P(Each, LeftoverMutant,
                         testing::Values(leftover_mutant::no_barrier_of_counts,
                                         leftover_mutant::full_is_not_looked_at,
                                         leftover_mutant::refused_is_kept));

class LeftoverGridMutant : public testing::TestWithParam<device::match_mutant> {
 protected:
  void TearDown() override { active_mutant<device::match_mutant> = device::match_mutant::none; }
};

TEST_P(LeftoverGridMutant, MakesGridRunsFail) {
  active_mutant<device::match_mutant> = GetParam();
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 2; ++seed)
    failures += run_case(kTraffic[1 + seed % 5], By::phases, seed).empty() ? 0 : 1;
  EXPECT_GE(failures, 2);
}

INSTANTIATE_TEST_SUITE_P(Each, LeftoverGridMutant,
                         testing::Values(device::match_mutant::any_order_of_receives,
                                         device::match_mutant::wildcards_overtake,
                                         device::match_mutant::keys_do_not_shift,
                                         device::match_mutant::looks_are_stale));

}  // namespace
}  // namespace polypath::test
