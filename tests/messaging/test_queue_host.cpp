// Queues of one GPU: many groups push, many pop. Every item once, whole, and in the order of each
// producer; and what these tests are worth: each defect of queue_mutant is found.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

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
std::string run_case(const QueueCase& of, std::uint64_t seed) {
  const unsigned size = team_size(of.members);
  const unsigned teams = of.producers * kThreads / size;
  const unsigned poppers = of.consumers * kThreads / size;
  const unsigned of_team = of.pushes * of.items * size;
  const std::size_t all = std::size_t{teams} * of_team;
  QueueMemory memory(of.words, of.capacity_log2, of.segment_log2);
  memory.start_at(of.first_lap);
  // A team that pops has a place for all, and for what a call leaves open at the end.
  const auto room =
      static_cast<std::uint32_t>(all + std::size_t{2} * of.items * size + 32 * all / size);
  constexpr std::uint32_t kPoison = 0xDEADBEEF;
  std::vector<Found> found(std::size_t{poppers} * room, Found{kPoison, kPoison, kPoison, kPoison});
  std::vector<std::uint32_t> elsewhere(all, kPoison);
  const QueueRow row{memory.view(), of.members,       of.calls, of.words,     of.items,
                     of.pushes,     elsewhere.data(), teams,    found.data(), room};
  simt::RunOptions options;
  options.seed = seed;
  options.max_steps = 2'000'000;
  const std::string error =
      simt::run({{simt::launch("polypath_test_pushes", 0, of.producers, kThreads, row),
                  simt::launch("polypath_test_close", 0, 1, 32, memory.view())},
                 {simt::launch("polypath_test_pops", 0, of.consumers, kThreads, row)}},
                options);
  if (!error.empty()) return error;
  std::vector<int> times(all, 0);
  for (unsigned popper = 0; popper < poppers; ++popper) {
    std::map<std::uint32_t, std::uint32_t> next;  // of each producing team
    for (std::size_t i = 0; i < room; ++i) {
      const Found& each = found[popper * std::size_t{room} + i];
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
    {"threads", Members::thread, Calls::waiting, 3, 1, 3, 1},
    {"threads_by_two", Members::thread, Calls::waiting, 5, 2, 5, 2},
    {"warps", Members::warp, Calls::waiting, 3, 1, 7, 5},
    {"warps_by_two", Members::warp, Calls::waiting, 2, 2, 8, 6},
    {"warps_of_32_bytes", Members::warp, Calls::waiting, 5, 1, 7, 5},
    {"warps_of_64_bytes", Members::warp, Calls::waiting, 10, 1, 7, 5},
    {"warps_of_128_bytes", Members::warp, Calls::waiting, 24, 1, 7, 5, 1, 1, 10},
    {"blocks", Members::block, Calls::waiting, 10, 2, 9, 6},
    {"one_to_many", Members::warp, Calls::waiting, 3, 1, 7, 5, 1, 3, 12},
    {"many_to_one", Members::warp, Calls::waiting, 3, 1, 7, 5, 3, 1},
    // Warps that push at once have turns of several laps; counts of cells read pass 2^32 on the
    // way.
    {"more_warps_than_cells", Members::warp, Calls::waiting, 24, 1, 7, 5, 5, 5, 3, (1U << 27) - 3},
    {"more_threads_than_cells", Members::thread, Calls::waiting, 3, 1, 3, 1, 2, 2, 6,
     (1U << 31) - 3},
    // ... and so do the laps themselves.
    {"laps_beyond_32_bits", Members::thread, Calls::waiting, 3, 1, 3, 1, 2, 2, 6, 0xFFFFFFFD},
    {"trying_threads", Members::thread, Calls::trying, 3, 1, 3, 1, 1, 2},
    {"trying_warps", Members::warp, Calls::trying, 5, 1, 7, 5},
    {"publishing_threads", Members::thread, Calls::publishing, 3, 2, 5, 2},
    {"publishing_warps", Members::warp, Calls::publishing, 3, 2, 8, 6},
};
INSTANTIATE_TEST_SUITE_P(Queue, Queues, testing::ValuesIn(kCases),
                         [](const auto& at) { return at.param.name; });

struct FaultCase {
  queue_mutant fault;
  std::size_t found_by;  ///< of kCases
};

class PlantedQueueFault : public testing::TestWithParam<FaultCase> {
 protected:
  void TearDown() override { active_mutant<queue_mutant> = queue_mutant::none; }
};

TEST_P(PlantedQueueFault, IsFound) {
  active_mutant<queue_mutant> = GetParam().fault;
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 300 && found < 3; ++seed)
    found += run_case(kCases[GetParam().found_by], seed).empty() ? 0 : 1;
  EXPECT_GE(found, 3) << "of 300 seeds";
}

INSTANTIATE_TEST_SUITE_P(Queue, PlantedQueueFault,
                         testing::Values(FaultCase{queue_mutant::no_credit, 2},
                                         FaultCase{queue_mutant::credit_before_reading, 2},
                                         FaultCase{queue_mutant::credit_of_other_lap, 2},
                                         FaultCase{queue_mutant::flag_behind_the_data, 2},
                                         FaultCase{queue_mutant::first_packet_alone, 6},
                                         FaultCase{queue_mutant::any_lap, 2},
                                         FaultCase{queue_mutant::two_looks_at_the_head, 14},
                                         FaultCase{queue_mutant::no_release, 16},
                                         FaultCase{queue_mutant::no_acquire, 16}));

/// One team pops from a queue that nobody pushes to, or pushes to one that nobody pops from.
QueueRow row_alone(QueueMemory& memory, std::vector<Found>& found) {
  return {memory.view(),
          Members::warp,
          Calls::waiting,
          3,
          1,
          9,
          nullptr,
          0,
          found.data(),
          static_cast<std::uint32_t>(found.size())};
}

TEST(QueueWaits, EndWithTheTimeLimitAndSayWhatFor) {
  for (const std::uint32_t producers : {0U, 1U}) {
    QueueMemory memory(3, 7, 5);
    std::vector<Found> found(32 * 16, Found{7, 7, 7, 7});
    const std::string error =
        simt::run({{simt::launch(producers == 0 ? "polypath_test_pops" : "polypath_test_pushes", 0,
                                 1, 32, row_alone(memory, found))}});
    ASSERT_EQ(error, "");
    const device::wait_error& status = memory.wait_ctx().status;
    EXPECT_EQ(status.given_up, 1U);
    EXPECT_EQ(status.reason, device::wait_error::time_limit);
    EXPECT_EQ(status.offset, 41U) << "the number of the queue";
    EXPECT_EQ(status.expected, producers == 0 ? 0U : 128U) << "the turn";
    for (const Found& each : found) EXPECT_EQ(each.team, 7U) << "nothing came";
    EXPECT_EQ(*memory.view().tail, producers * 9 * 32U) << "every push took its turn";
  }
}

TEST(QueueWaits, EndWithAnAbort) {
  QueueMemory memory(3, 7, 5);
  memory.wait_ctx().abort_flag = 1;
  std::vector<Found> found(32 * 16, Found{7, 7, 7, 7});
  ASSERT_EQ(simt::run({{simt::launch("polypath_test_pops", 0, 1, 64, row_alone(memory, found))}}),
            "");
  EXPECT_EQ(memory.wait_ctx().status.reason, device::wait_error::aborted);
}

TEST(QueuePolls, EndWithAnAbortWhereTheyAskForIt) {
  for (const Members members : {Members::thread, Members::warp, Members::block}) {
    QueueMemory memory(3, 7, 5);
    memory.wait_ctx().abort_flag = 1;
    std::vector<Found> found(32 * 16, Found{7, 7, 7, 7});
    QueueRow row = row_alone(memory, found);
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
  std::vector<Found> found(32 * 16, Found{7, 7, 7, 7});
  QueueRow row = row_alone(memory, found);
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
  std::vector<Found> found(32, Found{7, 7, 7, 7});
  ASSERT_EQ(simt::run({{simt::launch("polypath_test_pushes", 0, 1, 32, row_alone(memory, found))}}),
            "");
  EXPECT_EQ(*memory.view().tail, 0U);
}

}  // namespace
}  // namespace polypath::test
