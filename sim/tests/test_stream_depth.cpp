// How many operations a stream takes before its caller has to wait.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "copy_parameters.hpp"
#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

constexpr int kDepth = 1021;  // after the operation that the stream is at

class StreamDepth : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    word = reinterpret_cast<std::atomic<std::uint32_t>*>(allocate_host(4096));
    word->store(0);
    stream = create_stream(0);
    event = create_event(0, CU_EVENT_DISABLE_TIMING);
  }

  void TearDown() override {
    word->store(1);
    SimTest::TearDown();
  }

  /// Holds the stream until word is 1, and fills it.
  void fill(CUstream full) {
    ASSERT_CUDA(cuStreamWaitValue32(full, device(word), 1, CU_STREAM_WAIT_VALUE_EQ));
    for (int i = 0; i < kDepth; ++i) ASSERT_CUDA(cuEventRecord(event, full));
  }

  /// A call on another thread, which blocks until the stream is released, and its result.
  void expect_blocked(
      CUresult expected, const std::function<CUresult()>& call,
      const std::function<void()>& meanwhile = [] {}) {
    std::atomic<bool> began = false;
    std::atomic<bool> ended = false;
    std::thread caller([&] {
      use(0);
      began = true;
      EXPECT_CUDA(expected, call());
      ended = true;
    });
    while (!began) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time to go wrong in
    meanwhile();
    EXPECT_FALSE(ended);
    word->store(1);
    caller.join();
  }

  std::atomic<std::uint32_t>* word = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
};

TEST_F(StreamDepth, CopyWaitsForRoom) {
  const CUdeviceptr from = allocate(0, 100);
  const CUdeviceptr to = allocate(0, 100);
  const auto values = pattern(100, 5);
  write(from, values);
  fill(stream);
  expect_blocked(CUDA_SUCCESS, [&] { return cuMemcpyAsync(to, from, 100, stream); });
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_TRUE(values == peek(to, values.size()));
}

TEST_F(StreamDepth, RecordWaitsForRoom) {
  const CUevent another = create_event(0, CU_EVENT_DISABLE_TIMING);
  fill(stream);
  expect_blocked(CUDA_SUCCESS, [&] { return cuEventRecord(another, stream); });
  EXPECT_CUDA(CUDA_SUCCESS, cuEventSynchronize(another));
}

TEST_F(StreamDepth, WaitWaitsForRoom) {
  const CUstream other = create_stream(0);
  const CUevent of_other = create_event(0, CU_EVENT_DISABLE_TIMING);
  ASSERT_CUDA(cuEventRecord(of_other, other));
  fill(stream);
  expect_blocked(CUDA_SUCCESS, [&] { return cuStreamWaitEvent(stream, of_other, 0); });
}

TEST_F(StreamDepth, LaunchWaitsForRoom) {
  const CUdeviceptr from = allocate(0, 64);
  const CUdeviceptr to = allocate(0, 64);
  const auto values = pattern(64, 6);
  write(from, values);
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  const CUDA_MEMCPY3D parameters = copy_parameters(to, from, 64);
  ASSERT_CUDA(cuGraphCreate(&graph, 0));
  ASSERT_CUDA(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &parameters, context(0)));
  ASSERT_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  fill(stream);
  expect_blocked(CUDA_SUCCESS, [&] { return cuGraphLaunch(exec, stream); });
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_TRUE(values == peek(to, values.size()));
  ASSERT_CUDA(cuGraphExecDestroy(exec));
  ASSERT_CUDA(cuGraphDestroy(graph));
}

TEST_F(StreamDepth, LaunchIsOneOperation) {
  const CUdeviceptr memory = allocate(0, 128);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  const CUDA_MEMCPY3D parameters = copy_parameters(memory + 64, memory, 64);
  ASSERT_CUDA(cuGraphCreate(&graph, 0));
  // One after another, as all of them write the same bytes.
  CUgraphNode before = nullptr;
  for (int i = 0; i < 5; ++i) {
    CUgraphNode node = nullptr;
    ASSERT_CUDA(
        cuGraphAddMemcpyNode(&node, graph, &before, i == 0 ? 0 : 1, &parameters, context(0)));
    before = node;
  }
  ASSERT_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_CUDA(cuStreamWaitValue32(stream, device(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  for (int i = 0; i < kDepth; ++i) ASSERT_CUDA(cuGraphLaunch(exec, stream));
  expect_blocked(CUDA_SUCCESS, [&] { return cuGraphLaunch(exec, stream); });
  ASSERT_CUDA(cuStreamSynchronize(stream));
  ASSERT_CUDA(cuGraphExecDestroy(exec));
  ASSERT_CUDA(cuGraphDestroy(graph));
}

TEST_F(StreamDepth, OthersCallsGoOnMeanwhile) {
  const CUstream other = create_stream(0);
  const CUdeviceptr from = allocate(1, 100);
  const CUdeviceptr to = allocate(1, 100);
  const auto values = pattern(100, 7);
  write(from, values);
  fill(stream);
  expect_blocked(
      CUDA_SUCCESS, [&] { return cuEventRecord(event, stream); },
      [&] {
        EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(to, from, 100, other));
        EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(other));
        EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
        EXPECT_TRUE(values == peek(to, values.size()));
      });
}

TEST_F(StreamDepth, DestroyedStream_EndsBlockedCall) {
  fill(stream);
  expect_blocked(
      CUDA_ERROR_INVALID_HANDLE, [&] { return cuEventRecord(event, stream); },
      [&] { EXPECT_CUDA(CUDA_SUCCESS, cuStreamDestroy(stream)); });
}

TEST_F(StreamDepth, MovingStream_TakesMoreThanItsDepth) {
  const CUdeviceptr buffers = allocate(0, 4 * kMiB);
  const auto values = pattern(kMiB, 8);
  write(buffers, values);
  for (int i = 0; i < 3 * kDepth; ++i)
    ASSERT_CUDA(cuMemcpyAsync(buffers + (i + 1) % 4 * kMiB, buffers + i % 4 * kMiB, kMiB, stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_TRUE(values == peek(buffers + 3 * kDepth % 4 * kMiB, values.size()));
}

TEST_F(StreamDepth, DepthIsPerStream) {
  const CUstream other = create_stream(0);
  fill(stream);
  fill(other);
  word->store(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(other));
}

using StreamDepthDeathTest = StreamDepth;

TEST_F(StreamDepthDeathTest, DeadlockEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ASSERT_EQ(0, setenv("POLYPATH_SIM_TIMEOUT", "1", 1));
  EXPECT_DEATH(
      {
        fill(stream);
        cuEventRecord(event, stream);
      },
      "deadlock: a full stream has not moved for 1 s");
  unsetenv("POLYPATH_SIM_TIMEOUT");
}

}  // namespace
}  // namespace polypath::sim::test
