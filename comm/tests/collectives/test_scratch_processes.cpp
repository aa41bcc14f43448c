// Scratch of collectives that ranks take when a call needs it first, of ranks that are processes:
// random rows from skewed starts, memory of another rank that cannot be opened, and ranks that are
// killed or that end. Every byte is compared.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "call_rows.hpp"
#include "driver/check.hpp"
#include "process_group.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;

constexpr CollectivesOptions kDeferred{.max_blocks = 8, .defers_scratch = true};
constexpr ByteRange kLarge{500'000, 900'000};
constexpr ByteRange kSmall{1, 2'000};
/// Until a change that must come, after all ranks are ready.
constexpr int kCallsToChange = 4;

std::vector<PlannedCall> row_of(int ranks, const std::vector<ByteRange>& sizes) {
  Random random(20261128);  // draws the same on all ranks
  std::vector<PlannedCall> row;
  for (const ByteRange& bytes : sizes) {
    row.push_back(planned_call(random, ranks, bytes));
    while (row.back().what.count == 0) row.back() = planned_call(random, ranks, bytes);
  }
  return row;
}

/// Makes the calls of a row, from skewed starts.
void run_row(Communicator& comm, Collectives& collectives, const std::vector<PlannedCall>& row,
             CUstream stream, Random& own) {
  const CallRow memory(comm.driver(), row, comm.rank());
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (own() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
    collectives.run(memory.call(row, i), stream);
  }
  POLYPATH_CHECK(comm.driver(), stream_synchronize(stream));
  comm.check();
  memory.expect_done(row);
}

/// Makes calls until the ranks use all scratch, and some more.
void expect_change(Communicator& comm, Collectives& collectives,
                   const std::vector<PlannedCall>& row, CUstream stream, Random& own) {
  collectives.wait_scratch();
  comm.exchange({}, {});
  for (int i = 0; i < kCallsToChange; ++i) {
    run_row(comm, collectives, row, stream, own);
    comm.exchange({}, {});
  }
  const std::uint64_t before = collectives.counts().by_first_scratch;
  run_row(comm, collectives, row, stream, own);
  EXPECT_EQ(before, collectives.counts().by_first_scratch) << "did not change";
  EXPECT_GT(collectives.scratch_bytes(), collectives.max_kernel_scratch_bytes());
  comm.exchange({}, {});
}

RANK_PROGRAM(rows_while_scratch_is_taken) {
  const auto comm = self.create();
  const CurrentContext current(comm->driver(), comm->context());
  Collectives collectives(*comm, kDeferred);
  const Stream stream(comm->driver(), comm->context());
  Random alike(7);
  Random own(static_cast<std::uint64_t>(self.rank()));
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<PlannedCall> row;
    for (int i = 0; i < 6; ++i)
      row.push_back(
          planned_call(alike, comm->size(), alike() % 2 == 0 ? kLarge : ByteRange{0, 40'000}));
    run_row(*comm, collectives, row, stream.get(), own);
  }
  EXPECT_GT(collectives.counts().by_first_scratch, 0u);
  const std::vector<PlannedCall> row = row_of(comm->size(), {kLarge, kSmall});
  expect_change(*comm, collectives, row, stream.get(), own);
}
TEST(ScratchProcesses, RandomRowsFromSkewedStarts) {
  NEEDS_GPUS(2);
  expect_all_well("rows_while_scratch_is_taken", gpus_up_to(4));
}

/// Whether memory of other processes cannot be opened after some; how often it was tried, and was
/// opened.
std::atomic<bool> is_failing{false};
std::atomic<int> before_failure{0};
std::atomic<int> tried{0};
std::atomic<int> opened{0};

/// Rank 1 cannot open what the last of the others has taken, and then can.
RANK_PROGRAM(one_cannot_open) {
  const auto failing = std::make_shared<CudaDriver>(*self.source().driver);
  failing->ipc_open_mem_handle = [](CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
    if (is_failing && ++tried > before_failure) return CUDA_ERROR_OUT_OF_MEMORY;
    ++opened;
    return group_node().driver->ipc_open_mem_handle(address, handle, flags);
  };
  const auto comm = self.create(failing);
  const CurrentContext current(comm->driver(), comm->context());
  Collectives collectives(*comm, kDeferred);
  const Stream stream(comm->driver(), comm->context());
  Random own(static_cast<std::uint64_t>(self.rank()));
  const std::vector<PlannedCall> row = row_of(comm->size(), {kLarge});
  constexpr int kFailing = 9;
  const int others = comm->size() - 1;
  before_failure = others - 1;
  is_failing = self.rank() == 1;
  opened = 0;
  for (int i = 0; i < kFailing; ++i) {
    run_row(*comm, collectives, row, stream.get(), own);
    collectives.wait_scratch();
  }
  EXPECT_EQ(collectives.counts().by_first_scratch, kFailing);
  EXPECT_EQ(opened, self.rank() == 1 ? others - 1 : others);
  is_failing = false;
  // It is tried again at the calls 2, 4, 8 and 16.
  for (int i = kFailing; i < 16; ++i) run_row(*comm, collectives, row, stream.get(), own);
  expect_change(*comm, collectives, row, stream.get(), own);
  EXPECT_EQ(opened, others);  // each once
}
TEST(ScratchProcesses, OpenFails_FirstScratchCarriesCalls) {
  NEEDS_GPUS(2);
  expect_all_well("one_cannot_open", gpus_up_to(3));
}

std::vector<int> ranks_except_1(int ranks) {
  std::vector<int> all{0};
  for (int rank = 2; rank < ranks; ++rank) all.push_back(rank);
  return all;
}

/// Rank 1 is killed at the stage POLYPATH_TEST_STAGE; the threads of others may wait for it.
RANK_PROGRAM(one_is_killed_while_scratch_is_taken) {
  const auto comm = self.create();
  const CurrentContext current(comm->driver(), comm->context());
  Collectives collectives(*comm, kDeferred);
  const Stream stream(comm->driver(), comm->context());
  const std::vector<PlannedCall> row =
      row_of(comm->size(), {kLarge, kSmall, kLarge, kLarge, kLarge, kLarge, kLarge, kSmall});
  const CallRow memory(comm->driver(), row, comm->rank());
  self.at("before the first call");
  for (std::size_t i = 0; i < row.size(); ++i) {
    collectives.run(memory.call(row, i), stream.get());
    self.at(fmt::format("behind call {}", i));
  }
  POLYPATH_CHECK(comm->driver(), stream_synchronize(stream.get()));
  while (true) {  // rank 1 too, until it is killed
    self.at("all done");
    comm->check();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
class RankKilledWhileScratchIsTaken : public testing::TestWithParam<const char*> {};
TEST_P(RankKilledWhileScratchIsTaken, AllOthersSaySo) {
  NEEDS_GPUS(2);
  const int ranks = gpus_up_to(3);
  const auto results = results_of_kill("one_is_killed_while_scratch_is_taken", ranks, GetParam());
  for (const int rank : ranks_except_1(ranks))
    EXPECT_THAT(results[static_cast<std::size_t>(rank)], HasSubstr("rank 1")) << rank;
}
INSTANTIATE_TEST_SUITE_P(All, RankKilledWhileScratchIsTaken,
                         testing::Values("before the first call", "behind call 0", "behind call 4",
                                         "all done"),
                         [](const auto& stage) { return as_name(stage.param); });

/// The others ask for scratch, and rank 1 ends its communicator without a call.
RANK_PROGRAM(one_ends_while_others_wait) {
  auto comm = self.create();
  const CurrentContext current(comm->driver(), comm->context());
  auto collectives = std::make_unique<Collectives>(*comm, kDeferred);
  if (self.rank() == 1) {
    self.reached("created");
    return;
  }
  const std::vector<PlannedCall> row = row_of(comm->size(), {kLarge});
  const CallRow memory(comm->driver(), row, comm->rank());
  const Stream stream(comm->driver(), comm->context());
  const CapturedRow never_launched(comm->driver(), stream.get(),
                                   [&] { collectives->run(memory.call(row, 0), stream.get()); });
  self.reached("asked");
  collectives->wait_scratch();
  self.reached("done");
}
TEST(ScratchProcesses, RankEndsWhileOthersWait_AllEnd) {
  NEEDS_GPUS(2);
  const int ranks = gpus_up_to(3);
  const std::vector<int> others = ranks_except_1(ranks);
  ProcessGroup group("one_ends_while_others_wait", ranks);
  group.wait_for(1, "created");
  for (const int rank : others) group.wait_for(rank, "asked");
  for (const int rank : others) group.go(rank);
  group.go(1);
  for (const int rank : others) group.wait_for(rank, "done");
  for (const int rank : others) group.go(rank);
  expect_all_well(group, ranks);
}

}  // namespace
}  // namespace polypath::test
