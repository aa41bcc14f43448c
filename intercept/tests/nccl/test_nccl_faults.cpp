// Calls of the driver that fail on one rank alone, while a communicator is made and while its calls
// are put in order: no rank waits without end, and none has a success that is none.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <set>
#include <string>

#include "nccl_sums.hpp"

namespace polypath::test {
namespace {

using testing::Each;

/// As polypath_test_fail() has it; null: nothing fails.
bool let_fail(const char* function, int number = 0) {
  void* const driver = dlopen(std::getenv("POLYPATH_DRIVER_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  const auto fail =
      reinterpret_cast<bool (*)(const char*, int)>(dlsym(driver, "polypath_test_fail"));
  return fail(function, number);
}

/// What fails on rank 1 alone while a communicator is made: each call of a function in turn.
class NcclFaultInCreation : public testing::TestWithParam<const char*> {};
TEST_P(NcclFaultInCreation, LeavesAllToNccl) {
  std::atomic<bool> has_failed{true};
  int stayed = 0;
  // Every second copy fails: a rank that cannot read the others' answers has no way to go on.
  const int step = std::string(GetParam()) == "cuMemcpyAsync" ? 2 : 1;
  for (int number = 0; has_failed && number < 60; number += step) {
    SCOPED_TRACE(number);
    const CountsOf calls("ncclAllReduce");
    const auto enter = [&](NcclRank& member, const NcclId& id) {
      if (member.rank == 1) let_fail(GetParam(), number);
      NCCL_OK(member.nccl.ncclCommInitRank(&member.comm, member.size, id, member.rank));
      if (member.rank == 1) has_failed = !let_fail(nullptr);
    };
    const auto body = [](NcclRank& member) { expect_sum(member, 901, 1); };
    ASSERT_THAT(on_nccl_ranks(2, body, enter), Each(""));
    EXPECT_TRUE(calls.taken() == 0 || calls.taken() == 2) << calls.taken();
    stayed += calls.taken() == 0 ? 1 : 0;
  }
  EXPECT_FALSE(has_failed);
  static std::set<std::string> seen;
  if (seen.insert(GetParam()).second) {
    EXPECT_GT(stayed, 0);
  }
}
// The first one first: pinned memory is kept for later communicators, also when tests are repeated.
INSTANTIATE_TEST_SUITE_P(NcclFaults, NcclFaultInCreation,
                         testing::Values("cuMemHostAlloc", "cuMemAlloc_v2", "cuMemHostRegister_v2",
                                         "cuStreamCreate", "cuEventCreate", "cuMemsetD8Async",
                                         "cuMemcpyAsync"),
                         [](const auto& name) { return std::string(name.param); });

constexpr int kUnhandledCudaError = 1;
constexpr int kInt32 = 2;

/// Ends the communicator. As long as a fault counts as one, rank 0, whose call answered `error`,
/// waits before that for the error that the other rank's fault becomes.
void end_behind_fault(NcclRank& member, int error, const std::atomic<bool>& has_failed) {
  while (has_failed && member.rank == 0 && error == 0) {
    NCCL_OK(member.nccl.ncclCommGetAsyncError(member.comm, &error));
    std::this_thread::yield();
  }
  NCCL_OK(member.nccl.ncclCommAbort(member.comm));
  member.comm = nullptr;
  member.synchronize();  // released kernels have the buffers until then
}

/// A polypath call, and an NCCL call on another stream, whose order the driver cannot keep on
/// rank 1: it says so, and the other rank does not wait for it.
class NcclFaultInOrder : public testing::TestWithParam<const char*> {};
TEST_P(NcclFaultInOrder, FailedDriverCall_IsReported) {
  int failures = 0;
  std::atomic<bool> has_failed{true};
  for (int number = 0; has_failed && number < 20; ++number) {
    SCOPED_TRACE(number);
    const auto body = [&](NcclRank& member) {
      DeviceBytes sums(4000);
      DeviceBytes whole(4000);
      if (member.rank == 1) let_fail(GetParam(), number);
      const std::array codes{member.nccl.ncclAllReduce(sums.get(), sums.get(), 1000, kFloat32, kSum,
                                                       member.comm, member.streams[0]),
                             member.nccl.ncclAllReduce(whole.get(), whole.get(), 1000, kInt32, kSum,
                                                       member.comm, member.streams[1]),
                             member.nccl.ncclAllReduce(sums.get(), sums.get(), 1000, kFloat32, kSum,
                                                       member.comm, member.streams[0])};
      if (member.rank == 1) {
        has_failed = !let_fail(nullptr);
        // After any failure, a call says so.
        EXPECT_EQ(std::ranges::count(codes, 0) < 3, has_failed.load());
        failures += std::ranges::count(codes, kUnhandledCudaError) > 0 ? 1 : 0;
      }
      end_behind_fault(member, codes[2], has_failed);
    };
    EXPECT_THAT(on_nccl_ranks(2, body), Each(""));
  }
  EXPECT_FALSE(has_failed);
  EXPECT_GT(failures, 0);
}
INSTANTIATE_TEST_SUITE_P(NcclFaults, NcclFaultInOrder,
                         testing::Values("cuEventRecord", "cuStreamWaitEvent", "cuEventCreate"),
                         [](const auto& name) { return std::string(name.param); });

/// Two streams of one communicator in a group.
TEST_P(NcclFaultInOrder, FailedDriverCallInGroup_IsReported) {
  int failures = 0;
  std::atomic<bool> has_failed{true};
  for (int number = 0; has_failed && number < 20; ++number) {
    SCOPED_TRACE(number);
    std::barrier called(2);
    const auto body = [&](NcclRank& member) {
      DeviceBytes buffer(4000);
      expect_sum(member, 100, 1);
      if (member.rank == 1) let_fail(GetParam(), number);
      NCCL_OK(member.nccl.ncclGroupStart());
      for (const CUstream stream : member.streams)
        NCCL_OK(member.nccl.ncclAllReduce(buffer.get(), buffer.get(), 500, kFloat32, kSum,
                                          member.comm, stream));
      const int code = member.nccl.ncclGroupEnd();
      if (member.rank == 1) {
        has_failed = !let_fail(nullptr);
        EXPECT_EQ(code != 0, has_failed.load());
        failures += code == kUnhandledCudaError ? 1 : 0;
      }
      called.arrive_and_wait();
      end_behind_fault(member, code, has_failed);
    };
    EXPECT_THAT(on_nccl_ranks(2, body), Each(""));
  }
  EXPECT_FALSE(has_failed);
  EXPECT_GT(failures, 0);
}

}  // namespace
}  // namespace polypath::test
