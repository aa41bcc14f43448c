// Calls of the driver that fail on one rank alone, while a communicator is made and while its calls
// are put in order: no rank waits for ever, and none has a success that is none.
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
  // Of copies each second one: a rank that cannot read what the others say has no way to go on.
  const int step = std::string(GetParam()) == "cuMemcpyAsync" ? 2 : 1;
  for (int number = 0; has_failed && number < 60; number += step) {
    SCOPED_TRACE(number);
    const CountsOf calls("ncclAllReduce");
    const auto enter = [&](NcclRank& its, const NcclId& id) {
      if (its.rank == 1) let_fail(GetParam(), number);
      NCCL_OK(its.nccl.ncclCommInitRank(&its.comm, its.size, id, its.rank));
      if (its.rank == 1) has_failed = !let_fail(nullptr);
    };
    const auto body = [](NcclRank& its) { expect_sum(its, 901, 1); };
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
void end_behind_fault(NcclRank& its, int error, const std::atomic<bool>& has_failed) {
  while (has_failed && its.rank == 0 && error == 0) {
    NCCL_OK(its.nccl.ncclCommGetAsyncError(its.comm, &error));
    std::this_thread::yield();
  }
  NCCL_OK(its.nccl.ncclCommAbort(its.comm));
  its.comm = nullptr;
  its.synchronize();  // kernels that are let go have the buffers until then
}

/// A call of polypath's, and one of NCCL's on another stream, whose order the driver cannot keep on
/// rank 1: it says so, and the other rank does not wait for it.
class NcclFaultInOrder : public testing::TestWithParam<const char*> {};
TEST_P(NcclFaultInOrder, FailedDriverCall_IsReported) {
  int failures = 0;
  std::atomic<bool> has_failed{true};
  for (int number = 0; has_failed && number < 20; ++number) {
    SCOPED_TRACE(number);
    const auto body = [&](NcclRank& its) {
      DeviceBytes sums(4000);
      DeviceBytes whole(4000);
      if (its.rank == 1) let_fail(GetParam(), number);
      const std::array codes{its.nccl.ncclAllReduce(sums.get(), sums.get(), 1000, kFloat32, kSum,
                                                    its.comm, its.streams[0]),
                             its.nccl.ncclAllReduce(whole.get(), whole.get(), 1000, kInt32, kSum,
                                                    its.comm, its.streams[1]),
                             its.nccl.ncclAllReduce(sums.get(), sums.get(), 1000, kFloat32, kSum,
                                                    its.comm, its.streams[0])};
      if (its.rank == 1) {
        has_failed = !let_fail(nullptr);
        // Whatever has failed, a call says so.
        EXPECT_EQ(std::ranges::count(codes, 0) < 3, has_failed.load());
        failures += std::ranges::count(codes, kUnhandledCudaError) > 0 ? 1 : 0;
      }
      end_behind_fault(its, codes[2], has_failed);
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
    const auto body = [&](NcclRank& its) {
      DeviceBytes buffer(4000);
      expect_sum(its, 100, 1);
      if (its.rank == 1) let_fail(GetParam(), number);
      NCCL_OK(its.nccl.ncclGroupStart());
      for (const CUstream stream : its.streams)
        NCCL_OK(its.nccl.ncclAllReduce(buffer.get(), buffer.get(), 500, kFloat32, kSum, its.comm,
                                       stream));
      const int code = its.nccl.ncclGroupEnd();
      if (its.rank == 1) {
        has_failed = !let_fail(nullptr);
        EXPECT_EQ(code != 0, has_failed.load());
        failures += code == kUnhandledCudaError ? 1 : 0;
      }
      called.arrive_and_wait();
      end_behind_fault(its, code, has_failed);
    };
    EXPECT_THAT(on_nccl_ranks(2, body), Each(""));
  }
  EXPECT_FALSE(has_failed);
  EXPECT_GT(failures, 0);
}

}  // namespace
}  // namespace polypath::test
