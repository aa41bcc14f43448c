// Active messages between simulated GPUs: each executed once, with its arguments, in order; and
// what these tests are worth: each defect of active_message_mutant is found.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "active_kernels.h"
#include "active_memory.hpp"
#include "case_of.hpp"
#include "polypath/device/active_messages.cuh"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using device::active_message_mutant;

struct ActiveCase {
  const char* name;
  Members members;
  std::uint32_t ranks;
  std::uint32_t shards_log2;
  std::uint32_t capacity_log2;
  std::uint32_t segment_log2;
  std::uint32_t sends;
  std::uint32_t order = 0;
  unsigned blocks = 1;
};

struct RankOfRow {
  std::vector<std::uint32_t> executed;
  std::vector<std::uint32_t> answered;
  std::vector<std::uint32_t> last;
  std::vector<std::uint32_t> results;
  std::vector<std::uint64_t> counts;
  std::uint32_t wrong = 0;
  std::uint32_t done = 0;
};

/// Empty, or what was wrong.
std::string run_active(const ActiveCase& test_case, std::uint64_t seed) {
  constexpr unsigned kThreads = 64;
  const unsigned size = test_case.members == Members::thread ? 1 : 32;
  const unsigned teams = test_case.blocks * kThreads / size;
  const std::uint32_t of_rank = teams * test_case.sends * size;
  ActiveMemory memory(test_case.ranks, test_case.shards_log2, 64, test_case.capacity_log2,
                      test_case.segment_log2);
  std::vector<RankOfRow> ranks(test_case.ranks);
  std::vector<std::vector<simt::Launch>> rows;
  for (std::uint32_t rank = 0; rank < test_case.ranks; ++rank) {
    RankOfRow& own = ranks[rank];
    own.executed.assign(std::size_t{of_rank} * test_case.ranks, 0);
    own.answered.assign(of_rank, 0);
    own.last.assign(std::size_t{teams} * test_case.ranks, 0);
    own.results.assign(teams, 77);
    own.counts.assign(std::size_t{2} * test_case.ranks, 0);
    const ActiveRow row{memory.view(rank),   test_case.members,   teams,
                        test_case.sends,     test_case.order,     of_rank,
                        own.executed.data(), own.answered.data(), &own.wrong,
                        own.last.data(),     &own.done,           own.results.data(),
                        own.counts.data()};
    rows.push_back({simt::launch("polypath_test_active", static_cast<int>(rank), test_case.blocks,
                                 kThreads, row)});
  }
  simt::RunOptions options;
  options.seed = seed;
  options.max_steps = 20'000'000;
  const std::string error = simt::run(rows, options);
  if (!error.empty()) return error;
  for (std::uint32_t rank = 0; rank < test_case.ranks; ++rank) {
    const RankOfRow& own = ranks[rank];
    if (own.wrong != 0) return "wrong arguments, or out of order";
    for (std::uint32_t team = 0; team < teams; ++team) {
      const bool waits = test_case.order == 0 || team == 0;
      const auto end = waits ? device::status::closed : device::status::done;
      if (own.results[team] != static_cast<std::uint32_t>(end))
        return "ended with " + std::to_string(own.results[team]);
    }
    for (std::uint32_t i = 0; i < of_rank; ++i) {
      const std::uint32_t call = i / size % test_case.sends;
      const std::uint32_t to = (i / size / test_case.sends + call) % test_case.ranks;
      for (std::uint32_t at = 0; at < test_case.ranks; ++at) {
        const std::uint32_t times = ranks[at].executed[rank * std::size_t{of_rank} + i];
        if (times != (at == to ? 1U : 0U)) return "executed " + std::to_string(times) + " times";
      }
      const bool replies = test_case.order == 0 && call % 3 != 2 && i % 8 != 7;
      if (own.answered[i] != (replies ? 1U : 0U)) return "a reply lost, or too many";
    }
    for (std::uint32_t peer = 0; peer < test_case.ranks; ++peer)
      if (test_case.order == 0 && own.counts[2 * peer] != ranks[peer].counts[2 * rank + 1])
        return "other counts";
  }
  return "";
}

class ActiveMessages : public testing::TestWithParam<ActiveCase> {};

TEST_P(ActiveMessages, ExecutedOnceAndReplied) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    ASSERT_EQ(run_active(GetParam(), seed), "") << seed;
}

constexpr ActiveCase kActiveCases[] = {
    {.name = "warps_of_two",
     .members = Members::warp,
     .ranks = 2,
     .shards_log2 = 0,
     .capacity_log2 = 7,
     .segment_log2 = 5,
     .sends = 8},
    {.name = "blocks_of_two",
     .members = Members::block,
     .ranks = 2,
     .shards_log2 = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5,
     .sends = 10},
    {.name = "one_alone",
     .members = Members::warp,
     .ranks = 1,
     .shards_log2 = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5,
     .sends = 8},
    {.name = "threads_of_three",
     .members = Members::thread,
     .ranks = 3,
     .shards_log2 = 1,
     .capacity_log2 = 3,
     .segment_log2 = 0,
     .sends = 6},
    {.name = "warps_of_four_by_shards",
     .members = Members::warp,
     .ranks = 4,
     .shards_log2 = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5,
     .sends = 9,
     .blocks = 2},
    {.name = "in_order",
     .members = Members::thread,
     .ranks = 2,
     .shards_log2 = 0,
     .capacity_log2 = 9,
     .segment_log2 = 2,
     .sends = 8,
     .order = 1},
    {.name = "few_of_threads",
     .members = Members::thread,
     .ranks = 2,
     .shards_log2 = 0,
     .capacity_log2 = 3,
     .segment_log2 = 0,
     .sends = 1},
};
INSTANTIATE_TEST_SUITE_P(Active, ActiveMessages, testing::ValuesIn(kActiveCases),
                         [](const auto& at) { return at.param.name; });

struct ActiveFaultCase {
  active_message_mutant fault;
  const char* found_by;  ///< a name of kActiveCases
};

class ActiveMutant : public testing::TestWithParam<ActiveFaultCase> {
 protected:
  void TearDown() override { active_mutant<active_message_mutant> = active_message_mutant::none; }
};

TEST_P(ActiveMutant, MakesRunsFail) {
  active_mutant<active_message_mutant> = GetParam().fault;
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 2; ++seed)
    failures += run_active(case_of(kActiveCases, GetParam().found_by), seed).empty() ? 0 : 1;
  EXPECT_GE(failures, 2) << "of 300 seeds";
}
INSTANTIATE_TEST_SUITE_P(
    Active, ActiveMutant,
    testing::Values(ActiveFaultCase{active_message_mutant::replies_among_requests, "warps_of_two"},
                    ActiveFaultCase{active_message_mutant::no_progress_while_full, "warps_of_two"},
                    ActiveFaultCase{active_message_mutant::executed_before_the_reply,
                                    "few_of_threads"}));

/// Rank 0 of two, alone.
struct ActiveAlone {
  explicit ActiveAlone(std::uint32_t cell_bytes) : memory(2, 0, cell_bytes, 7, 5) {}
  std::string run(const char* kernel = "polypath_test_active") {
    const ActiveRow row{
        memory.view(0),  Members::warp,   2,      1,           0,     64,
        executed.data(), answered.data(), &wrong, last.data(), &done, results.data(),
        counts.data()};
    simt::RunOptions options;
    options.max_steps = 20'000'000;
    return simt::run({{simt::launch(kernel, 0, 1, 64, row)}}, options);
  }
  [[nodiscard]] device::status result(std::size_t team) const {
    return static_cast<device::status>(results.at(team));
  }
  ActiveMemory memory;
  std::vector<std::uint32_t> executed = std::vector<std::uint32_t>(128, 0);
  std::vector<std::uint32_t> answered = std::vector<std::uint32_t>(64, 0);
  std::vector<std::uint32_t> last = std::vector<std::uint32_t>(4, 0);
  std::vector<std::uint32_t> results = std::vector<std::uint32_t>(2, 77);
  std::vector<std::uint64_t> counts = std::vector<std::uint64_t>(4, 0);
  std::uint32_t wrong = 0;
  std::uint32_t done = 0;
};

TEST(ActiveAlone, GivesUpWhenAnotherRankNeverCloses) {
  ActiveAlone alone(64);
  ASSERT_EQ(alone.run(), "");
  for (const std::size_t team : {0U, 1U}) EXPECT_EQ(alone.result(team), device::status::aborted);
  const device::wait_error& status = alone.memory.wait_ctx(0).status;
  EXPECT_EQ(status.reason, device::wait_error::time_limit);
  EXPECT_EQ(status.offset, 47U) << "the number of these messages";
}

TEST(ActiveAlone, GivesUpAfterAnAbort) {
  ActiveAlone alone(64);
  alone.memory.wait_ctx(0).abort_flag = 1;
  ASSERT_EQ(alone.run(), "");
  EXPECT_EQ(alone.memory.wait_ctx(0).status.reason, device::wait_error::aborted);
}

TEST(ActiveAlone, HearsOfAnAbortWhereItPollsAndAsks) {
  ActiveAlone alone(64);
  alone.memory.wait_ctx(0).abort_flag = 1;
  ASSERT_EQ(alone.run("polypath_test_active_polls"), "");
  for (const std::size_t team : {0U, 1U})
    EXPECT_EQ(alone.results[team], 1000 + static_cast<std::uint32_t>(device::status::empty));
  EXPECT_EQ(alone.memory.wait_ctx(0).status.reason, device::wait_error::aborted);
}

TEST(ActiveAlone, RefusesCellsThatAreTooSmall) {
  ActiveAlone alone(32);
  ASSERT_EQ(alone.run(), "");
  for (const std::size_t team : {0U, 1U}) EXPECT_EQ(alone.result(team), device::status::bad_view);
  for (const std::uint64_t each : alone.counts) EXPECT_EQ(each, 0U) << "nothing was sent";
}

}  // namespace
}  // namespace polypath::test
