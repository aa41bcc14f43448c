// Traffic of other programs in functional mode: of this process, of the node file, of another
// process. Nothing depends on how fast the machine is: copies may end late, never early.
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include "fixture.hpp"
#include "own_machine.hpp"

namespace polypath::sim::test {
namespace {

constexpr double kBlockUs = 1e5;

// Before cuInit: another run of this test at the same time is on another machine.
[[maybe_unused]] const std::string machine = own_machine();

double now_us() {
  timespec now{};
  EXPECT_EQ(0, clock_gettime(CLOCK_MONOTONIC, &now));
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

/// Starts blocks of about kBlockUs on a link of 20 GB/s.
int start_traffic(const char* from, const char* to) {
  return polypath_sim_traffic_start(from, to, static_cast<std::uint64_t>(kBlockUs * 2e4), 1, 0, 0);
}

class FunctionalTraffic : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    stream_ = create_stream(0);
    buffer_ = allocate(0, kMiB);
    host_ = allocate_host(kMiB);
  }
  void TearDown() override {
    EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeHost(host_));
    SimTest::TearDown();
  }
  void copy_to_host() {
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(device(host_), buffer_, kMiB, stream_));
  }
  void copy_from_host() {
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(buffer_, device(host_), kMiB, stream_));
  }
  void wait() { EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream_)); }

  CUstream stream_ = nullptr;
  CUdeviceptr buffer_ = 0;
  std::uint8_t* host_ = nullptr;
};

struct Child {
  pid_t pid = 0;
  double started_us = 0;
};

/// A process whose traffic has begun.
Child fork_child() {
  std::array<int, 2> ends{};
  EXPECT_EQ(0, pipe(ends.data()));
  Child child;
  child.pid = fork();
  if (child.pid == 0) {
    ::alarm(120);
    const bool is_ready = cuInit(0) == CUDA_SUCCESS && start_traffic("gpu0", "host0") > 0;
    const double now = now_us();
    if (!is_ready || ::write(ends[1], &now, sizeof now) != sizeof now) _exit(1);
    ::pause();
    _exit(0);
  }
  ::close(ends[1]);
  EXPECT_EQ(static_cast<ssize_t>(sizeof child.started_us),
            ::read(ends[0], &child.started_us, sizeof child.started_us));
  ::close(ends[0]);
  return child;
}

// First, for it has to fork before cuInit.
TEST(FunctionalTrafficOfProcess, Copy_WaitsUntilItsDeath) {
  const Child child = fork_child();
  ASSERT_GT(child.started_us, 0);
  ASSERT_CUDA(cuInit(0));
  CUcontext context = nullptr;
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&context, 0));
  ASSERT_CUDA(cuCtxSetCurrent(context));
  CUdeviceptr buffer = 0;
  ASSERT_CUDA(cuMemAlloc(&buffer, kMiB));
  void* host = nullptr;
  ASSERT_CUDA(cuMemHostAlloc(&host, kMiB, CU_MEMHOSTALLOC_PORTABLE));
  const auto copy = [&] {
    EXPECT_CUDA(CUDA_SUCCESS,
                cuMemcpyAsync(std::bit_cast<CUdeviceptr>(host), buffer, kMiB, nullptr));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
  };
  copy();
  // At the end of the block that was in service.
  double begin = now_us();
  for (int i = 0; i < 3; ++i) copy();
  EXPECT_GT(now_us() - begin, 2 * kBlockUs * 0.9);

  EXPECT_EQ(0, ::kill(child.pid, SIGKILL));
  EXPECT_EQ(child.pid, ::waitpid(child.pid, nullptr, 0));
  polypath_sim_advance_us(2000);  // until it is noticed
  begin = now_us();
  for (int i = 0; i < 100; ++i) copy();
  EXPECT_LT(now_us() - begin, 99 * kBlockUs * 0.9);

  EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeHost(host));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(buffer));
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(0));
}

TEST_F(FunctionalTraffic, OwnTraffic_DelaysItsDirection) {
  const double begin = now_us();
  const int id = start_traffic("gpu0", "host0");
  ASSERT_GT(id, 0);
  copy_to_host();
  wait();
  EXPECT_GE(now_us() - begin, kBlockUs * 0.9);
  polypath_sim_traffic_stop(id);
}

TEST_F(FunctionalTraffic, RecordBeforeCopy_HidesWait) {
  auto* const word = reinterpret_cast<std::atomic<std::uint32_t>*>(host_ + kMiB - 64);
  word->store(0);
  const CUevent first = record(create_stream(0));
  ASSERT_CUDA(cuEventSynchronize(first));
  const int id = start_traffic("gpu0", "host0");
  // Until the copy is issued, so that no block ends between the record and it.
  ASSERT_CUDA(cuStreamWaitValue32(stream_, device(word), 1, 0));
  const CUevent begin = record(stream_);
  ASSERT_CUDA(cuMemcpyAsync(device(host_), buffer_, kMiB / 2, stream_));
  word->store(1);
  wait();
  EXPECT_GE(elapsed_us(first, begin), kBlockUs * 0.9);
  polypath_sim_traffic_stop(id);
}

/// Copies of another stream over the link come after all of one that never lacks work.
TEST_F(FunctionalTraffic, GreedyEngine_ServesOneStream) {
  const char* const engines = std::getenv("POLYPATH_SIM_ENGINES");
  if (engines == nullptr || std::string(engines) != "greedy") GTEST_SKIP() << "of greedy engines";
  const CUstream other = create_stream(0);
  const CUdeviceptr bytes = allocate(0, 4096);
  CUevent end = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < 64; ++i) copy_to_host();
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(end, stream_));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(device(host_), bytes, 4096, other));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(other));
  EXPECT_CUDA(CUDA_SUCCESS, cuEventQuery(end));
  EXPECT_CUDA(CUDA_SUCCESS, cuEventDestroy(end));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(bytes));
}

TEST_F(FunctionalTraffic, OtherDirection_IsFree) {
  const int id = start_traffic("gpu0", "host0");
  const double begin = now_us();
  for (int i = 0; i < 100; ++i) {
    copy_from_host();
    wait();
  }
  EXPECT_LT(now_us() - begin, 99 * kBlockUs * 0.9);
  polypath_sim_traffic_stop(id);
}

TEST_F(FunctionalTraffic, Stopped_DelaysNothing) {
  const int id = start_traffic("gpu0", "host0");
  polypath_sim_traffic_stop(id);
  polypath_sim_advance_us(kBlockUs);
  const double begin = now_us();
  for (int i = 0; i < 100; ++i) {
    copy_to_host();
    wait();
  }
  EXPECT_LT(now_us() - begin, 99 * kBlockUs * 0.9);
}

TEST_F(FunctionalTraffic, Copies_KeepTheirBytes) {
  const int id = start_traffic("gpu0", "host0");
  for (std::size_t i = 0; i < kMiB; ++i) host_[i] = static_cast<std::uint8_t>(i * 31 + i / 251);
  const std::vector<std::uint8_t> expected(host_, host_ + kMiB);
  copy_from_host();
  wait();
  std::fill_n(host_, kMiB, std::uint8_t{0xA5});
  copy_to_host();
  wait();
  EXPECT_EQ(expected, std::vector<std::uint8_t>(host_, host_ + kMiB));
  polypath_sim_traffic_stop(id);
}

}  // namespace
}  // namespace polypath::sim::test
