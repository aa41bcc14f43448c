// Queues and pairs between GPUs, over hostile schedules of several devices: cells with the
// consumer, tail and credit with the producer, every word between them a store that may come late. And what
// these tests are worth: each defect is found here, too.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "case_of.hpp"
#include "polypath/device/detail/ring_buffer.cuh"
#include "polypath/device/spsc_queue.cuh"
#include "polypath/device/status.hpp"
#include "queue_memory.hpp"
#include "remote_kernels.h"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using device::queue_mutant;
using device::spsc_mutant;

constexpr unsigned kThreads = 64;
constexpr std::uint32_t kPoison = 0xDEADBEEF;
constexpr std::size_t kLines = 128;

/// One queue, with the memory of each side on its device.
class RemoteQueue {
 public:
  /// `credit_of_host`: consumers give back elsewhere, as a CPU does.
  RemoteQueue(std::size_t cell, unsigned capacity_log2, unsigned segment_log2, int from, int to,
              bool credit_of_host = false)
      : bytes_((1 + kSegments) * kLines),
        producer_(bytes_, 0),
        elsewhere_(bytes_, 0),
        consumer_(bytes_ + kLines, 0),
        cells_(cell << capacity_log2, 0),
        cell_bytes_(cell << capacity_log2),
        from_(from),
        to_(to) {
    auto* const words = producer_.get<std::uint64_t>();
    auto* const others = consumer_.get<std::uint64_t>();
    pushes.tail = words;
    pushes.credit = reinterpret_cast<std::uint32_t*>(words + 16);
    pushes.closed = others + 16;
    *pushes.closed = device::queue_view::kOpen;
    pushes.cells = cells_.get<unsigned char>();
    pushes.capacity_log2 = capacity_log2;
    pushes.segment_log2 = segment_log2;
    pushes.number = 51;
    pushes.wait_ctx = of_pushes.wait_ctx();
    pops = pushes;
    pops.head = others;
    pops.read = reinterpret_cast<std::uint32_t*>(others + 32);
    pops.number = 52;
    pops.wait_ctx = of_pops.wait_ctx();
    if (credit_of_host) {
      pops.credit = elsewhere_.get<std::uint32_t>();
      pushes.credit_source = pops.credit;
    }
    // A side lacks everything that it does not use.
    pushes.head = nullptr;
    pushes.read = nullptr;
  }
  void add_memory(simt::RunOptions& options) {
    options.memory.push_back({producer_.get<unsigned char>(), bytes_, from_});
    options.memory.push_back({consumer_.get<unsigned char>(), bytes_ + kLines, to_});
    options.memory.push_back({cells_.get<unsigned char>(), cell_bytes_, to_});
  }

  device::queue_view pushes{};
  device::queue_view pops{};
  WaitContextMemory of_pushes;
  WaitContextMemory of_pops;

 private:
  static constexpr std::size_t kSegments = 64;
  std::size_t bytes_;
  LineBytes producer_;
  LineBytes elsewhere_;
  LineBytes consumer_;
  LineBytes cells_;
  std::size_t cell_bytes_;
  int from_;
  int to_;
};

/// Checks what came: each item once, whole, and in the order of its team. `numbers`: of each team.
std::string what_is_wrong(const std::vector<PoppedItem>& popped, std::size_t room, unsigned teams,
                          unsigned numbers) {
  std::vector<int> times(std::size_t{teams} * numbers, 0);
  for (std::size_t begin = 0; begin < popped.size(); begin += room) {
    std::map<std::uint32_t, std::uint32_t> next;
    for (std::size_t i = begin; i < begin + room; ++i) {
      const PoppedItem& each = popped[i];
      if (each.team == kPoison) continue;
      if (each.team >= teams || each.number >= numbers || each.is_right != 1) return "a torn item";
      ++times[each.team * std::size_t{numbers} + each.number];
      if (each.number < next[each.team]) return "out of order";
      next[each.team] = each.number + 1;
    }
  }
  for (const int count : times)
    if (count != 1) return count == 0 ? "a lost item" : "an item twice";
  return "";
}

struct RemoteCase {
  const char* name;
  Members members;
  Calls calls;
  std::uint32_t words;
  std::uint32_t items;
  unsigned capacity_log2;
  unsigned segment_log2;
  bool credit_of_host = false;
  bool is_line = false;
  bool one_behind_the_other = false;
  unsigned producers = 2;
  unsigned consumers = 2;
  unsigned pushes = 5;
};

std::string run_remote_case(const RemoteCase& test_case, std::uint64_t seed) {
  const unsigned size = test_case.members == Members::thread ? 1 : 32;
  const unsigned teams = test_case.producers * kThreads / size;
  const unsigned poppers = test_case.consumers * kThreads / size;
  const unsigned of_team = test_case.pushes * test_case.items * size;
  const std::size_t all = std::size_t{teams} * of_team;
  RemoteQueue queue(test_case.is_line ? 128 : cell_bytes(test_case.words), test_case.capacity_log2,
                    test_case.segment_log2, 0, 1, test_case.credit_of_host);
  const auto room =
      static_cast<std::uint32_t>(all + std::size_t{2} * test_case.items * size + 32 * all / size);
  std::vector<PoppedItem> popped(std::size_t{poppers} * room,
                                 PoppedItem{kPoison, kPoison, kPoison, kPoison});
  std::vector<std::uint32_t> elsewhere(all, kPoison);
  RemoteRow row{{queue.pushes, test_case.members, test_case.calls, test_case.words, test_case.items,
                 test_case.pushes, elsewhere.data(), teams, popped.data(), room},
                test_case.is_line};
  const auto pushes =
      simt::launch("polypath_test_remote_pushes", 0, test_case.producers, kThreads, row);
  const auto close = simt::launch("polypath_test_remote_close", 0, 1, 32, queue.pushes);
  row.queue.view = queue.pops;
  const auto pops =
      simt::launch("polypath_test_remote_pops", 1, test_case.consumers, kThreads, row);
  simt::RunOptions options;
  options.seed = seed;
  options.max_steps = 2'000'000;
  queue.add_memory(options);
  options.memory.push_back({elsewhere.data(), elsewhere.size() * sizeof elsewhere[0], 1});
  const std::string error = test_case.one_behind_the_other
                                ? simt::run({{pushes, close, pops}}, options)
                                : simt::run({{pushes, close}, {pops}}, options);
  if (!error.empty()) return error;
  return what_is_wrong(popped, room, teams, of_team);
}

class RemoteQueues : public testing::TestWithParam<RemoteCase> {};

TEST_P(RemoteQueues, EveryItemOnceAndInOrder) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed)
    ASSERT_EQ(run_remote_case(GetParam(), seed), "") << seed;
}

constexpr RemoteCase kRemoteCases[] = {
    {.name = "threads",
     .members = Members::thread,
     .calls = Calls::waiting,
     .words = 3,
     .items = 1,
     .capacity_log2 = 3,
     .segment_log2 = 1},
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
     .words = 3,
     .items = 2,
     .capacity_log2 = 8,
     .segment_log2 = 6},
    {.name = "warps_of_128_bytes",
     .members = Members::warp,
     .calls = Calls::waiting,
     .words = 24,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5,
     .producers = 1,
     .consumers = 1,
     .pushes = 8},
    {.name = "trying_warps",
     .members = Members::warp,
     .calls = Calls::trying,
     .words = 5,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5},
    {.name = "publishing_warps",
     .members = Members::warp,
     .calls = Calls::publishing,
     .words = 3,
     .items = 2,
     .capacity_log2 = 8,
     .segment_log2 = 6},
    {.name = "warps_to_host",
     .members = Members::warp,
     .calls = Calls::waiting,
     .words = 3,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5,
     .credit_of_host = true},
    {.name = "trying_warps_to_host",
     .members = Members::warp,
     .calls = Calls::trying,
     .words = 5,
     .items = 1,
     .capacity_log2 = 7,
     .segment_log2 = 5,
     .credit_of_host = true},
    {.name = "lines_that_lie_there",
     .members = Members::warp,
     .calls = Calls::waiting,
     .words = 30,
     .items = 1,
     .capacity_log2 = 10,
     .segment_log2 = 8,
     .is_line = true,
     .one_behind_the_other = true},
};
INSTANTIATE_TEST_SUITE_P(Queue, RemoteQueues, testing::ValuesIn(kRemoteCases),
                         [](const auto& at) { return at.param.name; });

struct RemoteFault {
  queue_mutant fault;
  const char* found_by;  ///< a name of kRemoteCases
};

class RemoteMutant : public testing::TestWithParam<RemoteFault> {
 protected:
  void TearDown() override { active_mutant<queue_mutant> = queue_mutant::none; }
};

TEST_P(RemoteMutant, MakesRunsFail) {
  active_mutant<queue_mutant> = GetParam().fault;
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 3; ++seed)
    failures += run_remote_case(case_of(kRemoteCases, GetParam().found_by), seed).empty() ? 0 : 1;
  EXPECT_GE(failures, 3) << "of 300 seeds";
}

INSTANTIATE_TEST_SUITE_P(
    Queue, RemoteMutant,
    testing::Values(RemoteFault{queue_mutant::no_credit, "warps"},
                    RemoteFault{queue_mutant::credit_before_reading, "warps"},
                    RemoteFault{queue_mutant::credit_of_other_lap, "warps"},
                    RemoteFault{queue_mutant::credit_of_other_lap, "warps_to_host"},
                    RemoteFault{queue_mutant::flag_behind_the_data, "warps"},
                    RemoteFault{queue_mutant::first_packet_alone, "warps_of_128_bytes"},
                    RemoteFault{queue_mutant::any_lap, "warps"},
                    RemoteFault{queue_mutant::two_looks_at_the_head, "trying_warps"},
                    RemoteFault{queue_mutant::no_release, "publishing_warps"},
                    RemoteFault{queue_mutant::no_acquire, "publishing_warps"}));

/// What the layout `line` asks of a path, these schedules do not give.
TEST(RemoteLines, UnorderedPath_TearsLines) {
  const RemoteCase lines{.name = "lines",
                         .members = Members::warp,
                         .calls = Calls::waiting,
                         .words = 30,
                         .items = 1,
                         .capacity_log2 = 7,
                         .segment_log2 = 5,
                         .is_line = true,
                         .producers = 1,
                         .consumers = 1,
                         .pushes = 8};
  int torn = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    torn += run_remote_case(lines, seed) == "a torn item" ? 1 : 0;
  EXPECT_GE(torn, 5) << "of 10 seeds";
}

TEST(RemoteQueues, SeveralSourcesIntoOneConsumer) {
  constexpr unsigned kSources = RingsRow::kMaxSources;
  constexpr unsigned kPushes = 12;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    simt::RunOptions options;
    options.seed = seed;
    options.max_steps = 4'000'000;
    std::vector<std::unique_ptr<RemoteQueue>> queues;
    std::vector<std::vector<simt::Launch>> rows;
    const std::uint32_t room = 2 * 2 * kPushes * 32;  // for what came twice, too
    std::vector<PoppedItem> popped(std::size_t{kSources} * room,
                                   PoppedItem{kPoison, kPoison, kPoison, kPoison});
    RingsRow rings{};
    rings.count = kSources;
    rings.popped = popped.data();
    rings.room = room;
    for (unsigned source = 0; source < kSources; ++source) {
      const int from = static_cast<int>(source) + 1;
      queues.push_back(std::make_unique<RemoteQueue>(16, 7, 5, from, 0));
      queues.back()->add_memory(options);
      const RemoteRow row{{queues.back()->pushes, Members::warp, Calls::waiting, 3, 1, kPushes,
                           nullptr, 2, nullptr, 0},
                          false};
      rows.push_back(
          {simt::launch("polypath_test_remote_pushes", from, 1, 64, row),
           simt::launch("polypath_test_remote_close", from, 1, 32, queues.back()->pushes)});
      rings.rings[source] = queues.back()->pops;
    }
    rows.push_back({simt::launch("polypath_test_rings_pops", 0, 1, 32, rings)});
    ASSERT_EQ(simt::run(rows, options), "") << seed;
    for (unsigned source = 0; source < kSources; ++source) {
      const auto begin = popped.begin() + source * room;
      ASSERT_EQ(what_is_wrong({begin, begin + room}, room, 2, kPushes * 32), "") << seed;
    }
  }
}

/// A remote side that never comes: the other ends with the time limit, and says for which turn.
TEST(RemoteQueues, WaitsEndWithTheTimeLimit) {
  RemoteQueue queue(16, 7, 5, 0, 1);
  std::vector<PoppedItem> popped(32 * 16, PoppedItem{7, 7, 7, 7});
  RemoteRow row{{queue.pushes, Members::warp, Calls::waiting, 3, 1, 9, nullptr, 0, nullptr, 0},
                false};
  simt::RunOptions options;
  queue.add_memory(options);
  ASSERT_EQ(simt::run({{simt::launch("polypath_test_remote_pushes", 0, 1, 32, row)}}, options), "");
  EXPECT_EQ(queue.of_pushes.status.reason, device::wait_error::time_limit);
  EXPECT_EQ(queue.of_pushes.status.offset, 51U);
  EXPECT_EQ(queue.of_pushes.status.expected, 128U) << "the first turn of the second lap";
}

std::string run_remote_pair_case(std::uint32_t words, Members members, std::uint64_t seed) {
  constexpr unsigned kKernels = 3;
  constexpr unsigned kCalls = 5;
  const unsigned size = members == Members::warp ? 32 : 64;
  const unsigned teams = kThreads / size;
  const unsigned items = words == 3 ? 2 : 1;
  const unsigned room = kCalls * items * size;
  const unsigned capacity_log2 = words == 24 ? 7 : members == Members::warp ? 8 : 9;
  PairMemory memory(words, capacity_log2, capacity_log2 - 2, teams);
  std::vector<PoppedItem> popped(std::size_t{kKernels} * teams * room, PoppedItem{7, 7, 7, 7});
  std::vector<simt::Launch> pushes;
  std::vector<simt::Launch> pops;
  const auto bytes = static_cast<std::uint32_t>(cell_bytes(words) << capacity_log2);
  for (unsigned kernel = 0; kernel < kKernels; ++kernel) {
    const RemotePairRow row{{memory.view(), bytes, members, words, items, kCalls, kernel * room,
                             popped.data() + std::size_t{kernel} * teams * room, room},
                            false};
    pushes.push_back(simt::launch("polypath_test_remote_pair_pushes", 0, 1, kThreads, row));
    pops.push_back(simt::launch("polypath_test_remote_pair_pops", 1, 1, kThreads, row));
  }
  simt::RunOptions options;
  options.seed = seed;
  options.max_steps = 1'000'000;
  const device::spsc_view& view = memory.view();
  options.memory = {{view.credit, std::size_t{2} * 128 * teams, 0},
                    {view.received, std::size_t{128} * teams, 1},
                    {view.cells, std::size_t{bytes} * teams, 1}};
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

TEST(RemotePairs, EveryItemInOrder) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    EXPECT_EQ(run_remote_pair_case(3, Members::warp, seed), "") << seed;
    EXPECT_EQ(run_remote_pair_case(24, Members::warp, seed), "") << seed;
    EXPECT_EQ(run_remote_pair_case(3, Members::block, seed), "") << seed;
  }
}

class RemotePairMutant : public testing::TestWithParam<spsc_mutant> {
 protected:
  void TearDown() override { active_mutant<spsc_mutant> = spsc_mutant::none; }
};

TEST_P(RemotePairMutant, MakesRunsFail) {
  active_mutant<spsc_mutant> = GetParam();
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 3; ++seed)
    failures += run_remote_pair_case(24, Members::warp, seed).empty() ? 0 : 1;
  EXPECT_GE(failures, 3) << "of 300 seeds";
}

INSTANTIATE_TEST_SUITE_P(Pair, RemotePairMutant,
                         testing::Values(spsc_mutant::no_credit, spsc_mutant::credit_before_reading,
                                         spsc_mutant::turn_forgotten));

}  // namespace
}  // namespace polypath::test
