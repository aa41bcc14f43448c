// What the worker threads keep in order, and what they do not.
#include <atomic>
#include <cstdlib>
#include <thread>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

class Order : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    word = reinterpret_cast<std::atomic<std::uint32_t>*>(allocate_host(4096));
    word->store(0);
  }

  void TearDown() override {
    word->store(1);  // a test that failed may still hold a stream
    SimTest::TearDown();
  }

  /// Holds the stream back until word is 1.
  void hold(CUstream stream) {
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamWaitValue32(stream, device(word), 1, 0));
  }

  /// Copies of these bytes from GPU 0 to GPU 0 on the stream, one buffer to the next; the last
  /// buffer.
  CUdeviceptr chain(CUstream stream, const std::vector<std::uint8_t>& values, int steps) {
    CUdeviceptr from = allocate(0, values.size());
    write(from, values);
    for (int i = 0; i < steps; ++i) {
      const CUdeviceptr to = allocate(0, values.size());
      EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(to, from, values.size(), stream));
      from = to;
    }
    return from;
  }

  std::atomic<std::uint32_t>* word = nullptr;
};

TEST_F(Order, CopiesOnOneStreamRunInTurn) {
  const auto values = pattern(300 * kKiB + 7, 3);
  const CUstream stream = create_stream(0);
  const CUdeviceptr end = chain(stream, values, 30);
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_TRUE(values == peek(end, values.size()));
}

TEST_F(Order, LegacyStream_RunsBetweenBlockingStreams) {
  const auto values = pattern(200 * kKiB + 1, 4);
  const CUdeviceptr from = allocate(0, values.size());
  write(from, values);
  for (int round = 0; round < 20; ++round) {
    const CUstream first = create_stream(0, CU_STREAM_DEFAULT);
    const CUstream second = create_stream(0, CU_STREAM_DEFAULT);
    const CUdeviceptr a = allocate(0, values.size());
    const CUdeviceptr b = allocate(0, values.size());
    const CUdeviceptr c = allocate(0, values.size());
    ASSERT_CUDA(cuMemcpyAsync(a, from, values.size(), first));
    ASSERT_CUDA(cuMemcpyAsync(b, a, values.size(), nullptr));
    ASSERT_CUDA(cuMemcpyAsync(c, b, values.size(), second));
    ASSERT_CUDA(cuStreamSynchronize(second));
    ASSERT_TRUE(values == peek(c, values.size())) << "round " << round;
  }
}

TEST_F(Order, HeldStream_HoldsNoOtherStream) {
  const auto values = pattern(64 * kKiB, 5);
  const CUstream held = create_stream(0);
  const CUstream other = create_stream(0);
  const CUdeviceptr from = allocate(0, values.size());
  const CUdeviceptr to = allocate(0, values.size());
  const CUdeviceptr beside = allocate(0, values.size());
  write(from, values);
  hold(held);
  ASSERT_CUDA(cuMemcpyAsync(to, from, values.size(), held));
  ASSERT_CUDA(cuMemcpyAsync(beside, from, values.size(), other));
  ASSERT_CUDA(cuStreamSynchronize(other));
  EXPECT_TRUE(values == peek(beside, values.size()));
  polypath_sim_advance_us(20'000);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
  EXPECT_EQ(std::vector<std::uint8_t>(values.size(), 0xC3), peek(to, values.size()));
  word->store(1);
  ASSERT_CUDA(cuStreamSynchronize(held));
  EXPECT_TRUE(values == peek(to, values.size()));
}

TEST_F(Order, CopyIntoDeviceMemory_ReleasesWait) {
  const CUdeviceptr flag = allocate(0, 4);
  write(flag, {0, 0, 0, 0});
  const CUstream held = create_stream(0);
  ASSERT_CUDA(cuStreamWaitValue32(held, flag, 7, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
  word->store(7);
  ASSERT_CUDA(cuMemcpyAsync(flag, device(word), 4, create_stream(0)));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(held));
}

TEST_F(Order, FreeWaitsForCopiesOfOtherContexts) {
  const auto values = pattern(kMiB, 6);
  enable_peer(1, 0);
  const CUstream stream = create_stream(1);
  const CUdeviceptr from = allocate(0, values.size());
  const CUdeviceptr to = allocate(1, values.size());
  write(from, values);
  hold(stream);
  ASSERT_CUDA(cuMemcpyAsync(to, from, values.size(), stream));
  std::thread opener([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    word->store(1);
  });
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(from));
  EXPECT_EQ(1U, word->load());
  EXPECT_TRUE(values == peek(to, values.size()));
  opener.join();
}

TEST_F(Order, WithASeedStreamsOvertakeEachOther) {
  const char* const seed = std::getenv("POLYPATH_SIM_SEED");
  if (seed == nullptr || std::string(seed) == "0") GTEST_SKIP() << "no delays";
  const CUstream first = create_stream(0);
  const CUstream second = create_stream(0);
  int overtaken = 0;
  for (int round = 0; round < 200; ++round) {
    const CUevent earlier = create_event(0);
    const CUevent later = create_event(0);
    ASSERT_CUDA(cuEventRecord(earlier, first));
    ASSERT_CUDA(cuEventRecord(later, second));
    ASSERT_CUDA(cuEventSynchronize(earlier));
    if (elapsed_us(earlier, later) < 0) ++overtaken;
  }
  EXPECT_GT(overtaken, 10);
  EXPECT_LT(overtaken, 190);
}

}  // namespace
}  // namespace polypath::sim::test
