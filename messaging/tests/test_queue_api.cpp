// The C API of queues, as a program links it, with kernels that push and pop on a simulated node.
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <thread>

#include "polypath/messaging/host_spsc_queue.hpp"
#include "queue_rig.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr unsigned kPushes = 6;

bool is_functional() {
  const char* const mode = std::getenv("POLYPATH_SIM_MODE");
  return mode != nullptr && std::string_view(mode) == "functional";
}

class QueueApi : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_context_create(nullptr, 0, &context_))
        << polypath_last_error();
    ASSERT_EQ(POLYPATH_SUCCESS,
              polypath_comm_create_all(context_, nullptr, kRanks, nullptr, comms_.data()))
        << polypath_last_error();
    for (int rank = 0; rank < kRanks; ++rank) gpus_.push_back(std::make_unique<TestGpu>(rank));
  }
  void TearDown() override {
    gpus_.clear();
    for (polypath_comm* comm : comms_) polypath_comm_destroy(comm);
    polypath_context_destroy(context_);
  }
  polypath_comm* comm(int rank) { return comms_.at(static_cast<std::size_t>(rank)); }
  TestGpu& gpu(int rank) { return *gpus_.at(static_cast<std::size_t>(rank)); }

  std::array<polypath_queue*, kRanks> connect(const polypath_queue_options& options, int from,
                                              int to, int count) {
    std::array<polypath_queue*, kRanks> queues{};
    EXPECT_OK(polypath_queue_connect_all(comms_.data(), kRanks, &options, from, to, count,
                                         queues.data()));
    return queues;
  }
  void destroy(const std::array<polypath_queue*, kRanks>& queues) {
    EXPECT_OK(polypath_queue_destroy_all(queues.data(), kRanks));
  }
  /// Two warps push, two pop, from a view to a view.
  void run_warps(TestGpu& from, const device::queue_view& pushes, TestGpu& to,
                 const device::queue_view& pops, const char* name) {
    const std::uint32_t room = 2 * kPushes * 32 + 64;
    PoppedItem* const popped = to.alloc_popped(std::size_t{2} * room);
    RemoteRow row{{pushes, Members::warp, Calls::waiting, 3, 1, kPushes, nullptr, 2, nullptr, 0},
                  false};
    from.launch("polypath_test_remote_pushes", 1, 64, row, 0);
    from.launch("polypath_test_remote_close", 1, 32, pushes, 0);
    row.queue.view = pops;
    row.queue.popped = popped;
    row.queue.room = room;
    to.launch("polypath_test_remote_pops", 1, 64, row, 1);
    from.synchronize();
    to.synchronize();
    for (polypath_comm* comm : comms_) EXPECT_OK(polypath_comm_check(comm));
    // Each of two popping warps has its own order.
    std::vector<PoppedItem> all = to.read(popped, std::size_t{2} * room);
    std::vector<PoppedItem> sorted(all);
    for (const unsigned half : {0U, 1U}) {
      std::map<std::uint32_t, std::uint32_t> next;
      for (unsigned i = 0; i < room; ++i) {
        const PoppedItem& each = all[half * room + i];
        if (each.team == kPoison) continue;
        EXPECT_GE(each.number, next[each.team]) << name;
        next[each.team] = each.number;
      }
    }
    std::ranges::sort(sorted, {},
                      [](const PoppedItem& each) { return std::pair(each.team, each.number); });
    EXPECT_EQ(what_is_wrong(sorted, 2, kPushes * 32), "") << name;
  }

  polypath_context* context_ = nullptr;
  std::array<polypath_comm*, kRanks> comms_{};
  std::vector<std::unique_ptr<TestGpu>> gpus_;
};

TEST_F(QueueApi, OnOneGpu) {
  const polypath_queue_options options = options_of(12, 128, 32);
  polypath_queue* queue = nullptr;
  EXPECT_OK(polypath_queue_create(comm(1), &options, 2, &queue));
  EXPECT_EQ(2, polypath_queue_count(queue));
  for (const int index : {0, 1})
    run_warps(gpu(1), view_of(queue, index, POLYPATH_QUEUE_PRODUCER), gpu(1),
              view_of(queue, index, POLYPATH_QUEUE_CONSUMER), "one GPU");
  EXPECT_THAT(report_of(queue),
              AllOf(HasSubstr("\"pushed\":384"), HasSubstr("\"popped\":384"),
                    HasSubstr("\"generations\":3"), HasSubstr("\"in_flight\":0"),
                    HasSubstr("\"from\":1"), HasSubstr("\"timed_out_wait\":\"\"")));
  EXPECT_OK(polypath_queue_destroy(queue));
}

TEST_F(QueueApi, FromOneRankToAnother) {
  const auto queues = connect(options_of(12, 128, 32), 2, 0, 2);
  for (const int index : {0, 1})
    run_warps(gpu(2), view_of(queues[2], index, POLYPATH_QUEUE_PRODUCER), gpu(0),
              view_of(queues[0], index, POLYPATH_QUEUE_CONSUMER), "two GPUs");
  for (polypath_queue* queue : queues)
    EXPECT_THAT(report_of(queue), AllOf(HasSubstr("\"from\":2"), HasSubstr("\"to\":0"),
                                        HasSubstr("\"pushed\":384,\"segment\":32")));
  device::queue_view view{};
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT,
            polypath_queue_view(queues[1], 0, POLYPATH_QUEUE_PRODUCER, &view, sizeof view));
  EXPECT_THAT(polypath_last_error(), HasSubstr("rank 1 is not on that side"));
  destroy(queues);
}

TEST_F(QueueApi, ItselfThroughSymmetricMemory) {
  const auto queues = connect(options_of(12, 128, 32), 1, 1, 1);
  run_warps(gpu(1), view_of(queues[1], 0, POLYPATH_QUEUE_PRODUCER), gpu(1),
            view_of(queues[1], 0, POLYPATH_QUEUE_CONSUMER), "itself");
  destroy(queues);
}

TEST_F(QueueApi, FromEachToEach) {
  const polypath_queue_options options = options_of(12, 128, 32);
  std::array<polypath_queue*, kRanks> queues{};
  EXPECT_OK(polypath_queue_connect_mesh_all(comms_.data(), kRanks, &options, queues.data()));
  std::array<PoppedItem*, kRanks> popped{};
  const std::uint32_t room = 2 * 2 * kPushes * 32;  // for what came twice, too
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    popped[at] = gpu(rank).alloc_popped(std::size_t{kRanks} * room);
    RingsRow rings{};
    rings.count = kRanks;
    rings.popped = popped[at];
    rings.room = room;
    for (int other = 0; other < kRanks; ++other) {
      const device::queue_view pushes = view_of(queues[at], other, POLYPATH_QUEUE_PRODUCER);
      const RemoteRow row{
          {pushes, Members::warp, Calls::waiting, 3, 1, kPushes, nullptr, 2, nullptr, 0}, false};
      gpu(rank).launch("polypath_test_remote_pushes", 1, 64, row, 0);
      gpu(rank).launch("polypath_test_remote_close", 1, 32, pushes, 0);
      rings.rings[other] = view_of(queues[at], other, POLYPATH_QUEUE_CONSUMER);
    }
    gpu(rank).launch("polypath_test_rings_pops", 1, 32, rings, 1);
  }
  for (int rank = 0; rank < kRanks; ++rank) gpu(rank).synchronize();
  for (int rank = 0; rank < kRanks; ++rank)
    for (int other = 0; other < kRanks; ++other)
      EXPECT_EQ(what_is_wrong(gpu(rank).read(popped[static_cast<std::size_t>(rank)] +
                                                 static_cast<std::size_t>(other) * room,
                                             room),
                              2, kPushes * 32),
                "")
          << other << " to " << rank;
  EXPECT_THAT(report_of(queues[1]),
              AllOf(HasSubstr("\"from\":1"), HasSubstr("\"from\":2"), HasSubstr("\"pushed\":384")));
  destroy(queues);
}

TEST_F(QueueApi, PairsBetweenRanks) {
  constexpr unsigned kCalls = 9;
  const auto queues = connect(options_of(96, 128, 32, POLYPATH_QUEUE_SPSC), 0, 1, 2);
  for (const int index : {0, 1}) {
    PoppedItem* const popped = gpu(1).alloc_popped(std::size_t{2} * kCalls * 32);
    for (const unsigned kernel : {0U, 1U}) {
      RemotePairRow row{{pair_of(queues[0], index, POLYPATH_QUEUE_PRODUCER), 0, Members::warp, 24,
                         1, kCalls, kernel * kCalls * 32, nullptr, kCalls * 32},
                        false};
      gpu(0).launch("polypath_test_remote_pair_pushes", 1, 32, row, 0);
      row.pair.view = pair_of(queues[1], index, POLYPATH_QUEUE_CONSUMER);
      row.pair.popped = popped + std::size_t{kernel} * kCalls * 32;
      gpu(1).launch("polypath_test_remote_pair_pops", 1, 32, row, 1);
    }
    gpu(0).synchronize();
    gpu(1).synchronize();
    EXPECT_EQ(what_is_wrong(gpu(1).read(popped, std::size_t{2} * kCalls * 32), 1, 2 * kCalls * 32),
              "");
  }
  EXPECT_THAT(report_of(queues[0]), HasSubstr("\"pushed\":576"));
  destroy(queues);
}

TEST_F(QueueApi, ToTheCpu) {
  constexpr std::size_t kAll = 2 * kPushes * 32;
  const polypath_queue_options options = options_of(12, is_functional() ? 128 : 1024, 32);
  polypath_queue* queue = nullptr;
  EXPECT_OK(polypath_queue_create_host(comm(0), &options, POLYPATH_QUEUE_CONSUMER, 1, &queue));
  const device::queue_view pushes = view_of(queue, 0, POLYPATH_QUEUE_PRODUCER);
  const RemoteRow row{
      {pushes, Members::warp, Calls::waiting, 3, 1, kPushes, nullptr, 2, nullptr, 0}, false};
  gpu(0).launch("polypath_test_remote_pushes", 1, 64, row, 0);
  gpu(0).launch("polypath_test_remote_close", 1, 32, pushes, 0);
  if (!is_functional()) gpu(0).synchronize();
  std::vector<std::array<std::uint32_t, 3>> items(kAll + 5);
  std::size_t popped = 0;
  EXPECT_OK(polypath_queue_pop(queue, 0, items.data(), items.size(), &popped));
  EXPECT_EQ(popped, kAll);
  std::array<std::uint32_t, 2> next{};
  for (std::size_t i = 0; i < popped; ++i) {
    ASSERT_LT(items[i][0], 2U);
    ASSERT_EQ(items[i][1], next[items[i][0]]++);
  }
  int closed = 0;
  EXPECT_OK(polypath_queue_try_pop(queue, 0, items.data(), 1, &popped, &closed));
  EXPECT_EQ(closed, 1);
  gpu(0).synchronize();
  EXPECT_THAT(report_of(queue), AllOf(HasSubstr("\"to\":\"host\""), HasSubstr("\"pushed\":384")));
  EXPECT_OK(polypath_queue_destroy(queue));
}

TEST_F(QueueApi, FromTheCpu) {
  if (!is_functional()) GTEST_SKIP() << "the CPU pushes while a kernel pops";
  const polypath_queue_options options = options_of(12, 128, 32);
  polypath_queue* queue = nullptr;
  EXPECT_OK(polypath_queue_create_host(comm(2), &options, POLYPATH_QUEUE_PRODUCER, 1, &queue));
  const std::uint32_t room = 2048;
  PoppedItem* const popped = gpu(2).alloc_popped(room);
  const RemoteRow row{{view_of(queue, 0, POLYPATH_QUEUE_CONSUMER), Members::warp, Calls::waiting, 3,
                       1, 0, nullptr, 0, popped, room},
                      false};
  gpu(2).launch("polypath_test_remote_pops", 1, 32, row, 1);
  std::vector<std::array<std::uint32_t, 3>> items;
  for (std::uint32_t number = 0; number < 500; ++number) {
    std::uint32_t value = number * 0x85EBCA6BU + 2 * 0xC2B2AE35U;
    value = (value ^ value >> 16) * 0x7FEB352DU;
    items.push_back({0, number, value ^ value >> 15});
  }
  EXPECT_OK(polypath_queue_push(queue, 0, items.data(), 300));
  std::size_t pushed = 0;
  for (std::size_t done = 300; done < items.size(); done += pushed)
    EXPECT_OK(polypath_queue_try_push(queue, 0, items[done].data(), 20, &pushed));
  EXPECT_OK(polypath_queue_close(queue, 0));
  gpu(2).synchronize();
  EXPECT_EQ(what_is_wrong(gpu(2).read(popped, room), 1, 500), "");
  EXPECT_OK(polypath_queue_destroy(queue));
}

/// There and back, by pairs, with the CPU's side in C++.
TEST_F(QueueApi, PairsWithTheCpu) {
  if (!is_functional()) GTEST_SKIP() << "the CPU pushes while a kernel pops";
  constexpr unsigned kCalls = 20;
  constexpr std::size_t kAll = kCalls * 64;
  const polypath_queue_options options = options_of(12, 256, 64, POLYPATH_QUEUE_SPSC);
  polypath_queue* to = nullptr;
  polypath_queue* from = nullptr;
  EXPECT_OK(polypath_queue_create_host(comm(0), &options, POLYPATH_QUEUE_CONSUMER, 1, &to));
  EXPECT_OK(polypath_queue_create_host(comm(0), &options, POLYPATH_QUEUE_PRODUCER, 1, &from));
  PoppedItem* const popped = gpu(0).alloc_popped(kAll);
  RemotePairRow row{
      {pair_of(to, 0, POLYPATH_QUEUE_PRODUCER), 0, Members::warp, 3, 2, kCalls, 0, nullptr, kAll},
      false};
  gpu(0).launch("polypath_test_remote_pair_pushes", 1, 32, row, 0);
  row.pair.view = pair_of(from, 0, POLYPATH_QUEUE_CONSUMER);
  row.pair.popped = popped;
  gpu(0).launch("polypath_test_remote_pair_pops", 1, 32, row, 1);
  using Words = std::array<std::uint32_t, 3>;
  messaging::host_spsc_consumer<Words> pops(pair_of(to, 0, POLYPATH_QUEUE_CONSUMER));
  messaging::host_spsc_producer<Words> pushes(pair_of(from, 0, POLYPATH_QUEUE_PRODUCER));
  for (std::size_t done = 0; done < kAll; ++done) {
    Words item{};
    ASSERT_EQ(pops.pop(item), device::status::done);
    ASSERT_EQ(item[1], done);
    ASSERT_EQ(pushes.push(item), device::status::done);
  }
  gpu(0).synchronize();
  EXPECT_EQ(what_is_wrong(gpu(0).read(popped, kAll), 1, kAll), "");
  EXPECT_OK(polypath_queue_destroy(to));
  EXPECT_OK(polypath_queue_destroy(from));
}

/// The pushing side rests for seconds before each call, or the popping one before its first: the
/// other finds the ring empty, or full, for long.
TEST_F(QueueApi, EmptyAndFullForLong) {
  if (is_functional()) GTEST_SKIP() << "takes as long there";
  constexpr std::uint32_t kRestUs = 3'000'000;
  for (const bool pushes_slowly : {true, false}) {
    const auto queues = connect(options_of(12, 128, 32), 1, 2, 1);
    const device::queue_view pushes = view_of(queues[1], 0, POLYPATH_QUEUE_PRODUCER);
    const std::uint32_t room = kPushes * 32 * 2 + 64;
    PoppedItem* const popped = gpu(2).alloc_popped(room);
    RemoteRow row{{pushes, Members::warp, Calls::waiting, 3, 1, kPushes, nullptr, 2, nullptr, 0,
                   pushes_slowly ? kRestUs : 0},
                  false};
    gpu(1).launch("polypath_test_remote_pushes", 1, 64, row, 0);
    gpu(1).launch("polypath_test_remote_close", 1, 32, pushes, 0);
    row.queue.view = view_of(queues[2], 0, POLYPATH_QUEUE_CONSUMER);
    row.queue.popped = popped;
    row.queue.room = room;
    row.queue.pause_us = 0;
    if (!pushes_slowly) gpu(2).launch("polypath_test_rest", 1, 32, kRestUs, 1);
    gpu(2).launch("polypath_test_remote_pops", 1, 32, row, 1);
    gpu(1).synchronize();
    gpu(2).synchronize();
    for (polypath_comm* comm : comms_) EXPECT_OK(polypath_comm_check(comm));
    EXPECT_EQ(what_is_wrong(gpu(2).read(popped, room), 2, kPushes * 32), "") << pushes_slowly;
    destroy(queues);
  }
}

TEST_F(QueueApi, PopTimeout_NamesQueueAndTicket) {
  if (!is_functional()) GTEST_SKIP() << "virtual time stands still while all wait";
  polypath_queue_options options = options_of(12, 128, 32);
  options.timeout_ms = 20;
  const auto queues = connect(options, 0, 2, 2);
  PoppedItem* const popped = gpu(2).alloc_popped(256);
  const RemoteRow row{{view_of(queues[2], 1, POLYPATH_QUEUE_CONSUMER), Members::warp,
                       Calls::waiting, 3, 1, 0, nullptr, 0, popped, 256},
                      false};
  gpu(2).launch("polypath_test_remote_pops", 1, 32, row, 1);
  gpu(2).synchronize();
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_comm_check(comm(2)));
  const std::string message = polypath_last_error();
  EXPECT_THAT(message, AllOf(HasSubstr("rank 2"),
                             HasSubstr("waited past the time limit for queue 1 from "
                                       "rank 0, the item of turn"),
                             HasSubstr("producers had taken 0 turns")));
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_comm_check(comm(0)));
  EXPECT_THAT(report_of(queues[2]), HasSubstr("queue 1 from rank 0, the item of turn"));
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_queue_destroy_all(queues.data(), kRanks));
}

TEST_F(QueueApi, PushTimeout_NamesQueueAndTicket) {
  if (!is_functional()) GTEST_SKIP() << "virtual time stands still while all wait";
  polypath_queue_options options = options_of(12, 128, 32);
  options.timeout_ms = 20;
  const auto queues = connect(options, 0, 2, 1);
  const RemoteRow row{{view_of(queues[0], 0, POLYPATH_QUEUE_PRODUCER), Members::warp,
                       Calls::waiting, 3, 1, 7, nullptr, 0, nullptr, 0},
                      false};
  gpu(0).launch("polypath_test_remote_pushes", 1, 32, row, 0);
  gpu(0).synchronize();
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_comm_check(comm(0)));
  EXPECT_THAT(polypath_last_error(), HasSubstr("queue 0 to rank 2, room for turn 128 (lap 1)"));
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_queue_destroy_all(queues.data(), kRanks));
}

TEST_F(QueueApi, CpuPopTimeout_NamesQueueAndTicket) {
  polypath_queue_options options = options_of(8);
  options.timeout_ms = 5;
  polypath_queue* queue = nullptr;
  EXPECT_OK(polypath_queue_create_host(comm(1), &options, POLYPATH_QUEUE_CONSUMER, 1, &queue));
  std::uint64_t item = 0;
  std::size_t popped = 7;
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_queue_pop(queue, 0, &item, 1, &popped));
  EXPECT_THAT(polypath_last_error(),
              HasSubstr("rank 1: the CPU waited past the time limit at queue 0 from rank 1"));
  EXPECT_EQ(popped, 0U);
  EXPECT_THAT(report_of(queue),
              HasSubstr("\"timed_out_wait\":\"queue 0 from rank 1, the item of turn 0 (lap 0)\""));
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_comm_check(comm(0)));
  EXPECT_OK(polypath_queue_destroy(queue));
}

/// What was pushed is what is in the ring, not the turns of producers that waited in vain.
TEST_F(QueueApi, CpuPushTimeout_CountsPushedItems) {
  polypath_queue_options options = options_of(8, 64, 16);
  options.timeout_ms = 5;
  polypath_queue* queue = nullptr;
  EXPECT_OK(polypath_queue_create_host(comm(1), &options, POLYPATH_QUEUE_PRODUCER, 2, &queue));
  const std::array<std::uint64_t, 64> items{};
  EXPECT_OK(polypath_queue_push(queue, 1, items.data(), 64));
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_queue_push(queue, 1, items.data(), 3));
  EXPECT_THAT(polypath_last_error(), HasSubstr("rank 1: the CPU waited past the time limit at "
                                               "queue 1 to rank 1, room for turn 64 (lap 1)"));
  EXPECT_THAT(report_of(queue),
              AllOf(HasSubstr("\"timed_out_wait\":\"queue 1 to rank 1, room for turn 64 (lap 1)\""),
                    HasSubstr("\"in_flight\":64"), HasSubstr("\"pushed\":64"),
                    HasSubstr("\"timed_out_wait\":\"\"")));
  EXPECT_OK(polypath_queue_destroy(queue));
}

TEST_F(QueueApi, PairsOfTheCpuGiveUpToo) {
  polypath_queue_options options = options_of(8, 64, 16, POLYPATH_QUEUE_SPSC);
  options.timeout_ms = 5;
  polypath_queue* queue = nullptr;
  EXPECT_OK(polypath_queue_create_host(comm(1), &options, POLYPATH_QUEUE_PRODUCER, 1, &queue));
  const std::array<std::uint64_t, 67> items{};
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_queue_push(queue, 0, items.data(), 67));
  EXPECT_THAT(report_of(queue),
              AllOf(HasSubstr("\"timed_out_wait\":\"pair 0 to rank 1, room for turn 64 (lap 1)\""),
                    HasSubstr("\"pushed\":64")));
  EXPECT_OK(polypath_queue_destroy(queue));
}

TEST_F(QueueApi, PopsOfPairsGiveUpToo) {
  polypath_queue_options options = options_of(8, 64, 16, POLYPATH_QUEUE_SPSC);
  options.timeout_ms = 5;
  polypath_queue* queue = nullptr;
  EXPECT_OK(polypath_queue_create_host(comm(1), &options, POLYPATH_QUEUE_CONSUMER, 1, &queue));
  std::uint64_t item = 0;
  std::size_t popped = 7;
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_queue_pop(queue, 0, &item, 1, &popped));
  EXPECT_THAT(report_of(queue),
              HasSubstr("\"timed_out_wait\":\"pair 0 from rank 1, the item of turn 0 (lap 0)\""));
  EXPECT_OK(polypath_queue_destroy(queue));
}

/// Each call that has room, or could answer "none yet".
TEST_F(QueueApi, CpuCallsAfterAbort_ReturnItsReason) {
  for (const polypath_queue_kind kind : {POLYPATH_QUEUE_MPMC, POLYPATH_QUEUE_SPSC}) {
    const int rank = kind == POLYPATH_QUEUE_MPMC ? 0 : 1;
    const polypath_queue_options options = options_of(8, 64, 16, kind);
    polypath_queue* pushes = nullptr;
    polypath_queue* pops = nullptr;
    polypath_comm* single_comm = nullptr;
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_comm_create_all(context_, &rank, 1, nullptr, &single_comm))
        << polypath_last_error();
    EXPECT_OK(
        polypath_queue_create_host(single_comm, &options, POLYPATH_QUEUE_PRODUCER, 1, &pushes));
    EXPECT_OK(polypath_queue_create_host(single_comm, &options, POLYPATH_QUEUE_CONSUMER, 1, &pops));
    std::uint64_t item = 0;
    std::size_t count = 7;
    int closed = 7;
    EXPECT_OK(polypath_queue_push(pushes, 0, &item, 1));
    EXPECT_OK(polypath_comm_abort(single_comm, "somebody wanted it"));
    const auto says_so = [](polypath_status status) {
      EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, status);
      EXPECT_THAT(polypath_last_error(), HasSubstr("unusable: somebody wanted it"));
    };
    says_so(polypath_queue_try_push(pushes, 0, &item, 1, &count));
    EXPECT_EQ(count, 0U);
    says_so(polypath_queue_push(pushes, 0, &item, 1));
    count = 7;
    says_so(polypath_queue_try_pop(pops, 0, &item, 1, &count, &closed));
    EXPECT_EQ(count, 0U);
    EXPECT_EQ(closed, 0);
    says_so(polypath_queue_pop(pops, 0, &item, 1, &count));
    if (kind == POLYPATH_QUEUE_MPMC) says_so(polypath_queue_close(pushes, 0));
    EXPECT_THAT(report_of(pushes),
                AllOf(HasSubstr("\"pushed\":1"), HasSubstr("\"timed_out_wait\":\"\"")));
    EXPECT_OK(polypath_queue_destroy(pushes));
    EXPECT_OK(polypath_queue_destroy(pops));
    EXPECT_OK(polypath_comm_destroy(single_comm));
  }
}

/// Stores of simulated GPUs come in no order.
TEST_F(QueueApi, LinesAreRefusedWhereTheyComeTorn) {
  polypath_queue_options options = options_of(120, 1024, 256, POLYPATH_QUEUE_SPSC);
  options.layout = POLYPATH_PROTOCOL_LL128;
  std::array<polypath_queue*, kRanks> queues{};
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(POLYPATH_NOT_SUPPORTED,
              polypath_queue_connect_all(comms_.data(), kRanks, &options, 0, 1, 1, queues.data()));
    EXPECT_THAT(polypath_last_error(), HasSubstr("the path from rank 0 (gpu0) to rank 1 (gpu1)"));
  }
  for (polypath_comm* comm : comms_) EXPECT_OK(polypath_comm_check(comm));
  polypath_queue* queue = nullptr;
  EXPECT_EQ(POLYPATH_INVALID_ARGUMENT,
            polypath_queue_create_host(comm(0), &options, POLYPATH_QUEUE_CONSUMER, 1, &queue));
  EXPECT_THAT(polypath_last_error(), HasSubstr("torn through host memory"));
}

TEST_F(QueueApi, BadInputIsNamed) {
  polypath_queue* queue = nullptr;
  const auto refused = [&](const polypath_queue_options& options, const char* why, int count = 1) {
    EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, polypath_queue_create(comm(0), &options, count, &queue));
    EXPECT_THAT(polypath_last_error(), HasSubstr(why));
    EXPECT_EQ(queue, nullptr);
  };
  refused(options_of(0), "options->item_bytes is 0: an item in packets has 1 to 96 bytes");
  refused(options_of(97), "options->item_bytes is 97");
  polypath_queue_options lines = options_of(121);
  lines.layout = POLYPATH_PROTOCOL_LL128;
  refused(lines, "options->item_bytes is 121: an item in lines has 1 to 120 bytes");
  refused(options_of(8, 100), "options->capacity is 100: it is to be a power of two");
  refused(options_of(8, 2), "options->capacity is 2");
  refused(options_of(8, 64, 32),
          "options->segment is 32: it is to be a power of two, at most a "
          "quarter");
  refused(options_of(8, 64, 12), "options->segment is 12");
  polypath_queue_options odd = options_of(8);
  odd.kind = 7;
  refused(odd, "options->kind is none");
  odd = options_of(8);
  odd.layout = 9;
  refused(odd, "options->layout is none");
  odd = options_of(8);
  odd.reserved[2] = 1;
  refused(odd, "options->reserved is not 0");
  refused(options_of(8), "count is 0", 0);
  refused(options_of(8), "count is 5000", 5000);
  const polypath_queue_options good = options_of(8);
  const auto invalid = [](polypath_status status, const char* why) {
    EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, status);
    EXPECT_THAT(polypath_last_error(), HasSubstr(why));
  };
  invalid(polypath_queue_create(nullptr, &good, 1, &queue), "comm is null");
  invalid(polypath_queue_create(comm(0), nullptr, 1, &queue), "options is null");
  invalid(polypath_queue_create(comm(0), &good, 1, nullptr), "queue is null");
  std::array<polypath_queue*, kRanks> queues{};
  invalid(polypath_queue_connect_all(comms_.data(), kRanks, &good, 0, kRanks, 1, queues.data()),
          "to is 3: there is no such rank of 3");
  invalid(polypath_queue_connect_all(comms_.data(), kRanks, &good, -1, 1, 1, queues.data()),
          "from is -1");
  invalid(polypath_queue_create_host(comm(0), &good, 4, 1, &queue), "host is none");
  invalid(polypath_queue_destroy(nullptr), "queue is null");
  EXPECT_EQ(-1, polypath_queue_count(nullptr));

  EXPECT_OK(polypath_queue_create_host(comm(0), &good, POLYPATH_QUEUE_CONSUMER, 1, &queue));
  device::queue_view view{};
  device::spsc_view pair{};
  invalid(polypath_queue_view(queue, 0, POLYPATH_QUEUE_PRODUCER, &pair, sizeof pair),
          "polypath::device::queue_view");
  invalid(polypath_queue_view(queue, 1, POLYPATH_QUEUE_PRODUCER, &view, sizeof view), "index is 1");
  invalid(polypath_queue_view(queue, 0, 2, &view, sizeof view), "side is none");
  invalid(polypath_queue_view(queue, 0, POLYPATH_QUEUE_PRODUCER, nullptr, sizeof view),
          "view is null");
  std::uint64_t item = 0;
  std::size_t count = 0;
  invalid(polypath_queue_push(queue, 0, &item, 1), "the CPU is not on that side");
  invalid(polypath_queue_pop(queue, 0, nullptr, 1, &count), "items is null");
  EXPECT_OK(polypath_queue_destroy(queue));
  EXPECT_OK(polypath_queue_create_host(comm(0), &good, POLYPATH_QUEUE_PRODUCER, 1, &queue));
  std::vector<std::uint64_t> many(300);
  invalid(polypath_queue_try_push(queue, 0, many.data(), many.size(), &count),
          "count is more than a segment");
  EXPECT_OK(polypath_queue_destroy(queue));
}

TEST_F(QueueApi, RanksThatDisagreeAllSaySo) {
  std::array<polypath_status, kRanks> results{};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      const polypath_queue_options options = options_of(8, rank == 2 ? 64 : 128, 16);
      polypath_queue* queue = nullptr;
      results[static_cast<std::size_t>(rank)] =
          polypath_queue_connect(comm(rank), &options, 0, 1, 1, &queue);
      EXPECT_THAT(polypath_last_error(), HasSubstr("rank 0 and rank 2 are not the same"));
    });
  for (std::thread& thread : threads) thread.join();
  for (const polypath_status result : results) EXPECT_EQ(result, POLYPATH_COMMUNICATOR_ERROR);
  for (polypath_comm* comm : comms_) EXPECT_OK(polypath_comm_check(comm));
}

}  // namespace
}  // namespace polypath::test
