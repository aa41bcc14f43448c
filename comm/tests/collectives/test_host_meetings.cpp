// Collectives of ranks whose GPUs cannot address each other's memory, and meet in host memory. On
// the simulated node a kernel that accesses another GPU's memory fails, so a call that ends well has
// kept away from it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "driver/check.hpp"
#include "process_group.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::array kOps{CollectiveOp::allreduce,  CollectiveOp::reduce_scatter,
                          CollectiveOp::all_gather, CollectiveOp::broadcast,
                          CollectiveOp::reduce,     CollectiveOp::all_to_all};

/// A call of one operation, at random for the rest. `by_copies`: may go so, which need apart what kernels
/// take in place.
PlannedCall call_of(Random& random, int ranks, CollectiveOp op, const ByteRange& bytes,
                    bool by_copies) {
  const auto fits = [&](const CollectiveCase& what) {
    if (what.op != op) return false;
    if (!by_copies) return true;
    if (op == CollectiveOp::all_to_all) return what.placement == Placement::apart;
    return op != CollectiveOp::reduce_scatter || what.placement != Placement::in_place;
  };
  PlannedCall call = planned_call(random, ranks, bytes);
  while (!fits(call.what)) call = planned_call(random, ranks, bytes);
  return call;
}

/// Rows of all operations, small and large ones in turn, on two streams, from starts that are
/// skewed at random.
void play(Communicator& comm, AlgorithmOverride choice, int rows) {
  ASSERT_FALSE(comm.has_peer_access());
  const CudaDriver& driver = comm.driver();
  Collectives collectives(comm, {.max_blocks = 8, .copies = choice != AlgorithmOverride::kernels});
  std::vector<Stream> streams;
  for (int i = 0; i < 2; ++i) streams.emplace_back(driver, comm.context());
  Random alike(20261128);
  Random own(static_cast<std::uint64_t>(comm.rank()));
  std::uint64_t issued = 0;
  for (int row = 0; row < rows && !testing::Test::HasFailure(); ++row) {
    std::vector<PlannedCall> calls;
    for (const CollectiveOp op : kOps)
      calls.push_back(call_of(alike, comm.size(), op,
                              row % 2 == 0 ? ByteRange{1, 20'000} : ByteRange{1'100'000, 1'300'000},
                              choice != AlgorithmOverride::kernels));
    const CallRow rank_row(driver, calls, comm.rank());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (own() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
      collectives.run(rank_row.call(calls, i), streams[own() % streams.size()].get(), choice);
    }
    issued += calls_of(calls);
    for (const Stream& stream : streams) POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    comm.check();
    rank_row.expect_done(calls);
  }
  const CollectiveCounts& counts = collectives.counts();
  EXPECT_EQ(issued, all_calls(counts));
  EXPECT_EQ(0u, counts.lines + counts.pairwise + counts.hierarchical + counts.ring + counts.mixed);
  if (choice == AlgorithmOverride::host_trees) {
    EXPECT_EQ(issued, counts.host_trees);
  }
  if (choice == AlgorithmOverride::kernels) {
    EXPECT_GT(counts.cells, 0u);
    EXPECT_GT(counts.channels, 0u);
  }
}

RANK_PROGRAM(kernels_meet_on_host) {
  const auto comm = self.create();
  const CurrentContext current(comm->driver(), comm->context());
  play(*comm, AlgorithmOverride::kernels, self.size() > 4 ? 2 : random_rows(4));
  comm->exchange({}, {});
}
RANK_PROGRAM(copies_meet_on_host) {
  const auto comm = self.create();
  const CurrentContext current(comm->driver(), comm->context());
  play(*comm, AlgorithmOverride::host_trees, 2);
  comm->exchange({}, {});
}
RANK_PROGRAM(planned_calls_meet_on_host) {
  const auto comm = self.create();
  const CurrentContext current(comm->driver(), comm->context());
  play(*comm, AlgorithmOverride::planned, 2);
  comm->exchange({}, {});
}

class HostMeetings : public testing::TestWithParam<int> {};

TEST_P(HostMeetings, ProcessesByKernels) {
  NEEDS_GPUS(GetParam());
  expect_all_well("kernels_meet_on_host", GetParam());
}
TEST_P(HostMeetings, ProcessesByCopies) {
  NEEDS_GPUS(GetParam());
  expect_all_well("copies_meet_on_host", GetParam());
}
TEST_P(HostMeetings, ProcessesAsPlanned) {
  NEEDS_GPUS(GetParam());
  expect_all_well("planned_calls_meet_on_host", GetParam());
}
TEST_P(HostMeetings, ThreadsByKernels) {
  NEEDS_GPUS(GetParam());
  Group group(GetParam());
  group.run([](Communicator& comm) { play(comm, AlgorithmOverride::kernels, 2); });
}
TEST_P(HostMeetings, ThreadsAsPlanned) {
  NEEDS_GPUS(GetParam());
  Group group(GetParam());
  group.run([](Communicator& comm) { play(comm, AlgorithmOverride::planned, 2); });
}
INSTANTIATE_TEST_SUITE_P(OfRanks, HostMeetings, testing::Values(2, 4, 8));

/// Memory that another process would have to put into is refused on all ranks alike, and the
/// communicator stays usable.
RANK_PROGRAM(large_memory_is_refused) {
  const auto comm = self.create();
  const CurrentContext current(comm->driver(), comm->context());
  try {
    comm->alloc(kMaxHostWords + 1);
    ADD_FAILURE() << "memory that no other process can put into";
  } catch (const NotSupported& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no peer access"), HasSubstr("65536 bytes")));
  }
  EXPECT_THROW(comm->alloc(64, SymmetricUse::peers), NotSupported);
  // Signals, and what little lies with them.
  const SymmetricMemory words = comm->alloc(kMaxHostWords);
  const Stream stream(comm->driver(), comm->context());
  const int next = (comm->rank() + 1) % comm->size();
  for (std::uint64_t round = 1; round <= 20; ++round) {
    comm->signal(next, {words, 8, round}, stream.get());
    comm->wait_signal({words, 8, round}, stream.get());
    comm->barrier(stream.get());
  }
  POLYPATH_CHECK(comm->driver(), stream_synchronize(stream.get()));
  comm->check();
  comm->exchange({}, {});
}
TEST(HostMeeting, LargeMemoryOfProcesses_IsRefusedAlike) {
  expect_all_well("large_memory_is_refused", 3);
}

/// A process whose registration of shared host memory fails: all ranks are told the same.
RANK_PROGRAM(one_cannot_register) {
  static bool fails = false;
  static const CudaDriver& below = *self.source().driver;
  const auto driver = std::make_shared<CudaDriver>(below);
  driver->mem_host_register = [](void* pages, std::size_t bytes, unsigned flags) -> CUresult {
    return fails ? CUDA_ERROR_OUT_OF_MEMORY : below.mem_host_register(pages, bytes, flags);
  };
  const auto comm = self.create(driver);
  const CurrentContext current(comm->driver(), comm->context());
  fails = self.rank() == 1;
  try {
    const Collectives collectives(*comm, {.max_blocks = 8});
    ADD_FAILURE() << "collectives were made";
  } catch (const CommunicatorError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("failed on rank 1"), HasSubstr("cuMemHostRegister")));
  }
  fails = false;
  play(*comm, AlgorithmOverride::kernels, 2);  // it is usable all the same
  comm->exchange({}, {});
}
TEST(HostMeeting, FailedRegistration_IsToldToAll) { expect_all_well("one_cannot_register", 3); }

}  // namespace
}  // namespace polypath::test
