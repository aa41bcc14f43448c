// Copies under the shim and sums of NCCL in one process have one context of the engine. Either may
// come first, and either may end first. Each test needs a process of its own (CMakeLists.txt).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "nccl_sums.hpp"
#include "polypath_sim.h"

namespace polypath::test {
namespace {

using testing::Each;

/// How many contexts of the engine were made: each begins the driver once.
std::size_t contexts_made() {
  void* const driver = dlopen(std::getenv("POLYPATH_DRIVER_LIBRARY"), RTLD_NOW);
  return reinterpret_cast<std::size_t (*)()>(dlsym(driver, "polypath_test_inits"))();
}

std::size_t thread_count() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

/// For what comes at once or never.
template <typename Condition>
bool comes(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// A copy of a program to the GPU, and how many copies the driver was given for it.
std::uint64_t copy_to(int gpu) {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  use_gpu(gpu);
  std::mt19937_64 random(static_cast<unsigned>(gpu) + 1);
  void* host = nullptr;
  CUDA_OK(cuMemHostAlloc(&host, kBytes, CU_MEMHOSTALLOC_PORTABLE));
  for (std::size_t i = 0; i < kBytes / 8; ++i) static_cast<std::uint64_t*>(host)[i] = random();
  DeviceBytes memory(kBytes);
  CUstream stream = nullptr;
  CUDA_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const std::uint64_t before = polypath_sim_copies();
  CUDA_OK(cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(memory.get()), host, kBytes, stream));
  CUDA_OK(cuStreamSynchronize(stream));
  const std::uint64_t copies = polypath_sim_copies() - before;
  const Bytes arrived = memory.all();
  EXPECT_EQ(std::memcmp(arrived.data(), host, kBytes), 0);
  EXPECT_TRUE(memory.is_guarded());
  CUDA_OK(cuStreamDestroy(stream));
  CUDA_OK(cuMemFreeHost(host));
  return copies;
}

void sum_on_two_ranks() {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(2, [](NcclRank& member) { expect_sum(member, 901, 1); }), Each(""));
  EXPECT_EQ(calls.taken(), 2);
}

TEST(NcclShared, CopyFirst) {
  EXPECT_GT(copy_to(0), 1U) << "the driver's alone";
  EXPECT_EQ(contexts_made(), 1U);
  sum_on_two_ranks();
  EXPECT_GT(copy_to(1), 1U);
  EXPECT_EQ(contexts_made(), 1U);
}

TEST(NcclShared, SumFirst) {
  sum_on_two_ranks();
  EXPECT_EQ(contexts_made(), 1U);
  EXPECT_GT(copy_to(0), 1U) << "the driver's alone";
  sum_on_two_ranks();
  EXPECT_EQ(contexts_made(), 1U);
}

/// The shim ends its use of the context, which a communicator of two other GPUs has: that goes on
/// with it. Later copies and communicators have a new context.
TEST(NcclShared, GpuReset_LeavesCommunicatorsTheirContext) {
  constexpr int kOther = 3;
  EXPECT_GT(copy_to(kOther), 1U);
  const CountsOf calls("ncclAllReduce");
  std::barrier step(2);
  std::size_t threads = 0;
  const auto body = [&](NcclRank& member) {
    expect_sum(member, 300, 1);
    step.arrive_and_wait();
    if (member.rank == 0) {
      CUDA_OK(cuDevicePrimaryCtxReset(kOther));
      EXPECT_GT(copy_to(kOther), 1U);
      EXPECT_EQ(contexts_made(), 2U);
      sum_on_two_ranks();
      EXPECT_EQ(contexts_made(), 2U);
      use_gpu(0);
      threads = thread_count();
    }
    step.arrive_and_wait();
    expect_sum(member, 400, 2);
  };
  EXPECT_THAT(on_nccl_ranks(2, body), Each(""));
  EXPECT_EQ(calls.taken(), 6);
  EXPECT_TRUE(comes([&] { return thread_count() < threads; })) << "the old context is there";
  EXPECT_GT(copy_to(0), 1U);
  EXPECT_EQ(contexts_made(), 2U);
}

/// Communicators end; the shim's copies go on with the context.
TEST(NcclShared, CommunicatorsEndFirst) {
  sum_on_two_ranks();
  EXPECT_GT(copy_to(0), 1U);
  for (int i = 0; i < 3; ++i) sum_on_two_ranks();
  EXPECT_GT(copy_to(1), 1U);
  EXPECT_EQ(contexts_made(), 1U);
}

/// What the shim could not make is tried once more for NCCL.
TEST(NcclShared, FailedForCopies_IsTriedAgain) {
  setenv("POLYPATH_ROUTES", "none such", 1);
  EXPECT_EQ(copy_to(0), 1U) << "not the driver's alone";
  unsetenv("POLYPATH_ROUTES");
  sum_on_two_ranks();
  EXPECT_EQ(copy_to(0), 1U) << "the shim tries once";
}

/// A child has neither: its calls return.
TEST(NcclShared, Child_HasNoContext) {
  EXPECT_GT(copy_to(0), 1U);
  sum_on_two_ranks();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    CUdeviceptr nowhere = 0;
    const std::vector<std::byte> bytes(std::size_t{4} << 20);
    std::array<void*, 2> comms{};
    // With any result: the driver is the parent's.
    cuMemcpyHtoD(nowhere, bytes.data(), bytes.size());
    NcclApi::get().ncclCommInitAll(comms.data(), 2, nullptr);
    _exit(contexts_made() == 1 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_GT(copy_to(1), 1U);
  sum_on_two_ranks();
  EXPECT_EQ(contexts_made(), 1U);
}

}  // namespace
}  // namespace polypath::test
