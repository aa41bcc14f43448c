// Pairs: one group pushes, one pops, in several kernels after one another.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "case_of.hpp"
#include "polypath/device/detail/ring_buffer.cuh"
#include "polypath/device/spsc_queue.cuh"
#include "queue_memory.hpp"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using device::spsc_mutant;

struct PairCase {
  const char* name;
  Members members;
  std::uint32_t words;
  std::uint32_t items;
  unsigned capacity_log2;
  unsigned segment_log2;
};

std::string run_pairs(const PairCase& test_case, std::uint64_t seed) {
  constexpr unsigned kThreads = 64;
  constexpr unsigned kKernels = 3;
  constexpr unsigned kCalls = 5;
  const unsigned size = test_case.members == Members::thread ? 1
                        : test_case.members == Members::warp ? 32
                                                             : 64;
  const unsigned teams = kThreads / size;
  const unsigned room = kCalls * test_case.items * size;
  PairMemory memory(test_case.words, test_case.capacity_log2, test_case.segment_log2, teams);
  std::vector<PoppedItem> popped(std::size_t{kKernels} * teams * room, PoppedItem{7, 7, 7, 7});
  std::vector<simt::Launch> pushes;
  std::vector<simt::Launch> pops;
  for (unsigned kernel = 0; kernel < kKernels; ++kernel) {
    const auto bytes =
        static_cast<std::uint32_t>(cell_bytes(test_case.words) << test_case.capacity_log2);
    const PairRow row{memory.view(),
                      bytes,
                      test_case.members,
                      test_case.words,
                      test_case.items,
                      kCalls,
                      kernel * room,
                      popped.data() + std::size_t{kernel} * teams * room,
                      room};
    pushes.push_back(simt::launch("polypath_test_pair_pushes", 0, 1, kThreads, row));
    pops.push_back(simt::launch("polypath_test_pair_pops", 0, 1, kThreads, row));
  }
  simt::RunOptions options;
  options.seed = seed;
  options.max_steps = 1'000'000;
  const std::string error = simt::run({pushes, pops}, options);
  if (!error.empty()) return error;
  for (unsigned kernel = 0; kernel < kKernels; ++kernel)
    for (unsigned team = 0; team < teams; ++team)
      for (unsigned i = 0; i < room; ++i) {
        const PoppedItem& each = popped[(std::size_t{kernel} * teams + team) * room + i];
        if (each.team != team || each.number != kernel * room + i || each.is_right != 1 ||
            each.result != 0)
          return "wrong item";
      }
  return "";
}

class Pairs : public testing::TestWithParam<PairCase> {};

TEST_P(Pairs, EveryItemInOrder) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed)
    ASSERT_EQ(run_pairs(GetParam(), seed), "") << seed;
}

constexpr PairCase kPairCases[] = {
    {.name = "threads",
     .members = Members::thread,
     .words = 3,
     .items = 1,
     .capacity_log2 = 2,
     .segment_log2 = 0},
    {.name = "threads_by_two",
     .members = Members::thread,
     .words = 24,
     .items = 2,
     .capacity_log2 = 4,
     .segment_log2 = 1},
    {.name = "warps",
     .members = Members::warp,
     .words = 3,
     .items = 2,
     .capacity_log2 = 8,
     .segment_log2 = 6},
    {.name = "warps_of_128_bytes",
     .members = Members::warp,
     .words = 24,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5},
    {.name = "block",
     .members = Members::block,
     .words = 3,
     .items = 2,
     .capacity_log2 = 9,
     .segment_log2 = 7},
    {.name = "block_of_128_bytes",
     .members = Members::block,
     .words = 24,
     .items = 1,
     .capacity_log2 = 8,
     .segment_log2 = 6},
};
INSTANTIATE_TEST_SUITE_P(Pair, Pairs, testing::ValuesIn(kPairCases),
                         [](const auto& at) { return at.param.name; });

class PairMutant : public testing::TestWithParam<spsc_mutant> {
 protected:
  void TearDown() override { active_mutant<spsc_mutant> = spsc_mutant::none; }
};

TEST_P(PairMutant, MakesRunsFail) {
  active_mutant<spsc_mutant> = GetParam();
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 3; ++seed)
    failures += run_pairs(case_of(kPairCases, "warps_of_128_bytes"), seed).empty() ? 0 : 1;
  EXPECT_GE(failures, 3) << "of 300 seeds";
}

INSTANTIATE_TEST_SUITE_P(Pair, PairMutant,
                         testing::Values(spsc_mutant::no_credit, spsc_mutant::credit_before_reading,
                                         spsc_mutant::turn_forgotten));

/// A block of two warps alone at one side; at the other, a warp that does half of what it waits
/// for, or none.
std::string run_half(PairMemory& memory, bool block_pushes, bool other_comes,
                     std::vector<PoppedItem>& popped, std::uint64_t seed) {
  const auto bytes = static_cast<std::uint32_t>(cell_bytes(3) << 8);
  PairRow row{memory.view(),
              bytes,
              Members::block,
              3,
              1,
              9,
              0,
              popped.data(),
              static_cast<std::uint32_t>(popped.size())};
  PairRow other = row;
  other.members = Members::warp;
  other.calls = 1;
  const char* const kernels[] = {"polypath_test_pair_pushes", "polypath_test_pair_pops"};
  std::vector<std::vector<simt::Launch>> rows = {
      {simt::launch(kernels[block_pushes ? 0 : 1], 0, 1, 64, row)}};
  if (other_comes) rows.push_back({simt::launch(kernels[block_pushes ? 1 : 0], 0, 1, 32, other)});
  simt::RunOptions options;
  options.seed = seed;
  return simt::run(rows, options);
}

TEST(PairWaits, ConsumingGroup_TimesOutAsWhole) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    PairMemory memory(3, 8, 6, 1);
    std::vector<PoppedItem> popped(9 * 64, PoppedItem{7, 7, 7, 7});
    ASSERT_EQ(run_half(memory, false, true, popped, seed), "");
    const device::wait_error& status = memory.wait_ctx().status;
    EXPECT_EQ(status.reason, device::wait_error::time_limit);
    EXPECT_EQ(status.offset, 43U) << "the number of the pair";
    EXPECT_GE(status.expected, 32U) << "the turn";
    for (std::size_t i = 0; i < popped.size(); ++i)
      EXPECT_EQ(popped[i].result,
                i < 64 ? static_cast<std::uint32_t>(device::status::aborted) : 7U);
    EXPECT_EQ(*memory.view().credit, 0U) << "what was not read is not given back";
    EXPECT_EQ(*memory.view().received, 0U);
  }
}

TEST(PairWaits, ProducingGroup_TimesOutAsWhole) {
  for (const bool pops : {false, true}) {
    PairMemory memory(3, 8, 6, 1);
    std::vector<PoppedItem> popped(9 * 64, PoppedItem{7, 7, 7, 7});
    ASSERT_EQ(run_half(memory, true, pops, popped, 3), "");
    EXPECT_EQ(memory.wait_ctx().status.reason, device::wait_error::time_limit);
    EXPECT_EQ(memory.wait_ctx().status.expected, 64U) << "read, for the fifth push";
    EXPECT_EQ(memory.wait_ctx().status.seen, pops ? 32U : 0U);
    EXPECT_EQ(*memory.view().sent, 0U);
  }
}

TEST(PairWaits, TimedOutPush_NoLaterPushSucceeds) {
  PairMemory memory(3, 8, 6, 1);
  *memory.view().sent = 96;  // nothing of it was read: there is room for five times 32
  std::vector<std::uint32_t> results(6, 7);
  ASSERT_EQ(simt::run({{simt::launch("polypath_test_pair_small_push_last", 0, 1, 32, memory.view(),
                                     results.data())}}),
            "");
  for (std::size_t call = 0; call < 6; ++call)
    EXPECT_EQ(results[call], static_cast<std::uint32_t>(call < 4 ? device::status::done
                                                                 : device::status::aborted));
}

TEST(PairWaits, EndWithAnAbort) {
  PairMemory memory(3, 8, 6, 1);
  memory.wait_ctx().abort_flag = 1;
  std::vector<PoppedItem> popped(9 * 64, PoppedItem{7, 7, 7, 7});
  ASSERT_EQ(run_half(memory, false, true, popped, 1), "");
  EXPECT_EQ(memory.wait_ctx().status.reason, device::wait_error::aborted);
}

TEST(PairWaits, GroupsThatDoNotAgreeAreFound) {
  active_mutant<spsc_mutant> = spsc_mutant::answers_by_warp;
  PairMemory memory(3, 8, 6, 1);
  std::vector<PoppedItem> popped(9 * 64, PoppedItem{7, 7, 7, 7});
  const std::string error = run_half(memory, false, true, popped, 1);
  active_mutant<spsc_mutant> = spsc_mutant::none;
  EXPECT_TRUE(!error.empty() || popped[0].result != popped[63].result);
}

}  // namespace
}  // namespace polypath::test
