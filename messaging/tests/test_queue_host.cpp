// Queues of one GPU: many groups push, many pop. Every item once, whole, and in the order of each
// producer; and what these tests are worth: each defect of queue_mutant is found.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "case_of.hpp"
#include "polypath/device/detail/ring_buffer.cuh"
#include "polypath/device/status.hpp"
#include "queue_memory.hpp"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using device::queue_mutant;

constexpr unsigned kThreads = 64;

struct QueueCase {
  const char* name;
  Members members;
  Calls calls;
  std::uint32_t words;
  std::uint32_t items;
  unsigned capacity_log2;
  unsigned segment_log2;
  unsigned producers = 2;
  unsigned consumers = 2;
  unsigned pushes = 6;
  std::uint32_t first_lap = 0;
};

unsigned team_size(Members members) { return members == Members::thread ? 1 : 32; }

/// Empty, or what was wrong.
std::string run_case(const QueueCase& test_case, std::uint64_t seed) {
  const unsigned size = team_size(test_case.members);
  const unsigned teams = test_case.producers * kThreads / size;
  const unsigned poppers = test_case.consumers * kThreads / size;
  const unsigned of_team = test_case.pushes * test_case.items * size;
  const std::size_t all = std::size_t{teams} * of_team;
  QueueMemory memory(test_case.words, test_case.capacity_log2, test_case.segment_log2);
  memory.start_at(test_case.first_lap);
  // A team that pops has a place for all, and for what a call leaves open at the end.
  const auto room =
      static_cast<std::uint32_t>(all + std::size_t{2} * test_case.items * size + 32 * all / size);
  constexpr std::uint32_t kPoison = 0xDEADBEEF;
  std::vector<PoppedItem> popped(std::size_t{poppers} * room,
                                 PoppedItem{kPoison, kPoison, kPoison, kPoison});
  std::vector<std::uint32_t> elsewhere(all, kPoison);
  const QueueRow row{
      memory.view(),    test_case.members, test_case.calls, test_case.words, test_case.items,
      test_case.pushes, elsewhere.data(),  teams,           popped.data(),   room};
  simt::RunOptions options;
  options.seed = seed;
  options.max_steps = 2'000'000;
  const std::string error =
      simt::run({{simt::launch("polypath_test_pushes", 0, test_case.producers, kThreads, row),
                  simt::launch("polypath_test_close", 0, 1, 32, memory.view())},
                 {simt::launch("polypath_test_pops", 0, test_case.consumers, kThreads, row)}},
                options);
  if (!error.empty()) return error;
  std::vector<int> times(all, 0);
  for (unsigned popper = 0; popper < poppers; ++popper) {
    std::map<std::uint32_t, std::uint32_t> next;  // of each producing team
    for (std::size_t i = 0; i < room; ++i) {
      const PoppedItem& each = popped[popper * std::size_t{room} + i];
      if (each.team == kPoison) continue;
      if (each.team >= teams || each.number >= of_team || each.is_right != 1) return "a torn item";
      ++times[each.team * std::size_t{of_team} + each.number];
      if (each.number < next[each.team]) return "out of order";
      next[each.team] = each.number + 1;
    }
  }
  for (const int count : times)
    if (count != 1) return count == 0 ? "a lost item" : "an item twice";
  return "";
}

class Queues : public testing::TestWithParam<QueueCase> {};

TEST_P(Queues, EveryItemOnceAndInOrder) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) ASSERT_EQ(run_case(GetParam(), seed), "") << seed;
}

constexpr QueueCase kCases[] = {
    {.name = "threads",
     .members = Members::thread,
     .calls = Calls::waiting,
     .words = 3,
     .items = 1,
     .capacity_log2 = 3,
     .segment_log2 = 1},
    {.name = "threads_by_two",
     .members = Members::thread,
     .calls = Calls::waiting,
     .words = 5,
     .items = 2,
     .capacity_log2 = 5,
     .segment_log2 = 2},
    {.name = "warps",
     .members = Members::warp,
     .calls = Calls::waiting,
     .words = 3,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5},
    {.name = "warps_by_two",
     .members = Members::warp,
     .calls = Calls::waiting,
     .words = 2,
     .items = 2,
     .capacity_log2 = 8,
     .segment_log2 = 6},
    {.name = "warps_of_32_bytes",
     .members = Members::warp,
     .calls = Calls::waiting,
     .words = 5,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5},
    {.name = "warps_of_64_bytes",
     .members = Members::warp,
     .calls = Calls::waiting,
     .words = 10,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5},
    {.name = "warps_of_128_bytes",
     .members = Members::warp,
     .calls = Calls::waiting,
     .words = 24,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5,
     .producers = 1,
     .consumers = 1,
     .pushes = 10},
    {.name = "blocks",
     .members = Members::block,
     .calls = Calls::waiting,
     .words = 10,
     .items = 2,
     .capacity_log2 = 9,
     .segment_log2 = 6},
    {.name = "one_to_many",
     .members = Members::warp,
     .calls = Calls::waiting,
     .words = 3,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5,
     .producers = 1,
     .consumers = 3,
     .pushes = 12},
    {.name = "many_to_one",
     .members = Members::warp,
     .calls = Calls::waiting,
     .words = 3,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5,
     .producers = 3,
     .consumers = 1},
    // Warps that push at once have turns of several laps; counts of cells read pass 2^32 on the
    // way.
    {.name = "more_warps_than_cells",
     .members = Members::warp,
     .calls = Calls::waiting,
     .words = 24,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5,
     .producers = 5,
     .consumers = 5,
     .pushes = 3,
     .first_lap = (1U << 27) - 3},
    {.name = "more_threads_than_cells",
     .members = Members::thread,
     .calls = Calls::waiting,
     .words = 3,
     .items = 1,
     .capacity_log2 = 3,
     .segment_log2 = 1,
     .first_lap = (1U << 31) - 3},
    // ... and so do the laps themselves.
    {.name = "laps_beyond_32_bits",
     .members = Members::thread,
     .calls = Calls::waiting,
     .words = 3,
     .items = 1,
     .capacity_log2 = 3,
     .segment_log2 = 1,
     .first_lap = 0xFFFFFFFD},
    {.name = "trying_threads",
     .members = Members::thread,
     .calls = Calls::trying,
     .words = 3,
     .items = 1,
     .capacity_log2 = 3,
     .segment_log2 = 1,
     .producers = 1},
    {.name = "trying_warps",
     .members = Members::warp,
     .calls = Calls::trying,
     .words = 5,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5},
    {.name = "publishing_threads",
     .members = Members::thread,
     .calls = Calls::publishing,
     .words = 3,
     .items = 2,
     .capacity_log2 = 5,
     .segment_log2 = 2},
    {.name = "publishing_warps",
     .members = Members::warp,
     .calls = Calls::publishing,
     .words = 3,
     .items = 2,
     .capacity_log2 = 8,
     .segment_log2 = 6},
};
INSTANTIATE_TEST_SUITE_P(Queue, Queues, testing::ValuesIn(kCases),
                         [](const auto& at) { return at.param.name; });

struct FaultCase {
  queue_mutant fault;
  const char* found_by;  ///< a name of kCases
};

class QueueMutant : public testing::TestWithParam<FaultCase> {
 protected:
  void TearDown() override { active_mutant<queue_mutant> = queue_mutant::none; }
};

TEST_P(QueueMutant, MakesRunsFail) {
  active_mutant<queue_mutant> = GetParam().fault;
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 3; ++seed)
    failures += run_case(case_of(kCases, GetParam().found_by), seed).empty() ? 0 : 1;
  EXPECT_GE(failures, 3) << "of 300 seeds";
}

INSTANTIATE_TEST_SUITE_P(
    Queue, QueueMutant,
    testing::Values(FaultCase{queue_mutant::no_credit, "warps"},
                    FaultCase{queue_mutant::credit_before_reading, "warps"},
                    FaultCase{queue_mutant::credit_of_other_lap, "warps"},
                    FaultCase{queue_mutant::flag_behind_the_data, "warps"},
                    FaultCase{queue_mutant::first_packet_alone, "warps_of_128_bytes"},
                    FaultCase{queue_mutant::any_lap, "warps"},
                    FaultCase{queue_mutant::two_looks_at_the_head, "trying_warps"},
                    FaultCase{queue_mutant::no_release, "publishing_warps"},
                    FaultCase{queue_mutant::no_acquire, "publishing_warps"}));

/// One team pops from a queue without a producer, or pushes to one without a consumer.
QueueRow row_alone(QueueMemory& memory, std::vector<PoppedItem>& popped) {
  return {memory.view(),
          Members::warp,
          Calls::waiting,
          3,
          1,
          9,
          nullptr,
          0,
          popped.data(),
          static_cast<std::uint32_t>(popped.size())};
}

TEST(QueueWaits, EndWithTheTimeLimitAndSayWhatFor) {
  for (const std::uint32_t producers : {0U, 1U}) {
    QueueMemory memory(3, 7, 5);
    std::vector<PoppedItem> popped(32 * 16, PoppedItem{7, 7, 7, 7});
    const std::string error =
        simt::run({{simt::launch(producers == 0 ? "polypath_test_pops" : "polypath_test_pushes", 0,
                                 1, 32, row_alone(memory, popped))}});
    ASSERT_EQ(error, "");
    const device::wait_error& status = memory.wait_ctx().status;
    EXPECT_EQ(status.given_up, 1U);
    EXPECT_EQ(status.reason, device::wait_error::time_limit);
    EXPECT_EQ(status.offset, 41U) << "the number of the queue";
    EXPECT_EQ(status.expected, producers == 0 ? 0U : 128U) << "the turn";
    for (const PoppedItem& each : popped) EXPECT_EQ(each.team, 7U) << "nothing came";
    EXPECT_EQ(*memory.view().tail, producers * 9 * 32U) << "every push took its turn";
  }
}

TEST(QueueWaits, EndWithAnAbort) {
  QueueMemory memory(3, 7, 5);
  memory.wait_ctx().abort_flag = 1;
  std::vector<PoppedItem> popped(32 * 16, PoppedItem{7, 7, 7, 7});
  ASSERT_EQ(simt::run({{simt::launch("polypath_test_pops", 0, 1, 64, row_alone(memory, popped))}}),
            "");
  EXPECT_EQ(memory.wait_ctx().status.reason, device::wait_error::aborted);
}

TEST(QueuePolls, EndWithAnAbortWhereTheyAskForIt) {
  for (const Members members : {Members::thread, Members::warp, Members::block}) {
    QueueMemory memory(3, 7, 5);
    memory.wait_ctx().abort_flag = 1;
    std::vector<PoppedItem> popped(32 * 16, PoppedItem{7, 7, 7, 7});
    QueueRow row = row_alone(memory, popped);
    row.members = members;
    row.calls = Calls::trying;
    row.room = 1;
    simt::RunOptions options;
    options.max_steps = 2'000'000;
    ASSERT_EQ(simt::run({{simt::launch("polypath_test_pops", 0, 1, 64, row)}}, options), "");
    EXPECT_EQ(memory.wait_ctx().status.reason, device::wait_error::aborted);
    EXPECT_EQ(memory.wait_ctx().status.offset, 41U) << "the number of the queue";
  }
}

/// Loads of a long wait of a warp for items of eight packets: how many beyond the first packet.
std::size_t loads_of_later_packets() {
  QueueMemory memory(24, 7, 5);
  std::vector<PoppedItem> popped(32 * 16, PoppedItem{7, 7, 7, 7});
  QueueRow row = row_alone(memory, popped);
  row.words = 24;
  std::size_t loads = 0;
  const auto cells = reinterpret_cast<std::uintptr_t>(memory.view().cells);
  simt::RunOptions options;
  options.access = [&](std::uintptr_t address, std::size_t, bool writes) {
    const std::uintptr_t at = address - cells;
    if (!writes && at < std::uintptr_t{128} * 128 && at % 128 >= sizeof(device::ll_packet)) ++loads;
  };
  EXPECT_EQ(simt::run({{simt::launch("polypath_test_pops", 0, 1, 32, row)}}, options), "");
  EXPECT_EQ(memory.wait_ctx().status.reason, device::wait_error::time_limit);
  return loads;
}

// Thousands of warps that wait in one full or empty ring load the memory that the others need.
TEST(QueueWaits, LookAtOnePacketOfAnItemThatIsNotThere) {
  constexpr std::size_t kFirstLook = 32 * 7;
  EXPECT_EQ(loads_of_later_packets(), kFirstLook);
  active_mutant<queue_mutant> = queue_mutant::looks_at_all_packets;
  EXPECT_GT(loads_of_later_packets(), 4 * kFirstLook) << "the test sees what it is to see";
  active_mutant<queue_mutant> = queue_mutant::none;
}

TEST(QueueWaits, MoreThanASegmentIsRefusedAndTakesNoTurn) {
  QueueMemory memory(3, 6, 4);
  std::vector<PoppedItem> popped(32, PoppedItem{7, 7, 7, 7});
  ASSERT_EQ(
      simt::run({{simt::launch("polypath_test_pushes", 0, 1, 32, row_alone(memory, popped))}}), "");
  EXPECT_EQ(*memory.view().tail, 0U);
}

}  // namespace
}  // namespace polypath::test
