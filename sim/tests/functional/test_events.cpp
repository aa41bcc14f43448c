// Events on worker threads: real time, and polls without the driver's lock.
#include <atomic>
#include <chrono>
#include <thread>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

class Events : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    word = reinterpret_cast<std::atomic<std::uint32_t>*>(allocate_host(4096));
    word->store(0);
    stream = create_stream(0);
  }

  void TearDown() override {
    word->store(1);  // a test that failed may still hold a stream
    SimTest::TearDown();
  }

  void hold() { EXPECT_CUDA(CUDA_SUCCESS, cuStreamWaitValue32(stream, device(word), 1, 0)); }

  std::atomic<std::uint32_t>* word = nullptr;
  CUstream stream = nullptr;
};

TEST_F(Events, TellRealTime) {
  const CUevent begin = record(stream);
  hold();
  const CUevent end = record(stream);
  ASSERT_CUDA(cuEventSynchronize(begin));
  constexpr auto kPause = std::chrono::milliseconds(20);
  const double before = polypath_sim_clock_us();
  std::this_thread::sleep_for(kPause);
  EXPECT_GE(polypath_sim_clock_us() - before, 20'000);
  word->store(1);
  EXPECT_GE(elapsed_us(begin, end), 20'000);
}

TEST_F(Events, HeldStream_EventIsNotReady) {
  hold();
  const CUevent event = record(stream);
  // So many polls end in time only because they are cheap.
  for (int i = 0; i < 1'000'000; ++i) ASSERT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  float milliseconds = 0;
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&milliseconds, event, event));
  word->store(1);
  while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
  }
  EXPECT_CUDA(CUDA_SUCCESS, cuEventQuery(event));
  EXPECT_CUDA(CUDA_SUCCESS, cuEventElapsedTime(&milliseconds, event, event));
}

TEST_F(Events, NewRecord_ResetsEvent) {
  const CUevent event = record(stream);
  ASSERT_CUDA(cuEventSynchronize(event));
  hold();
  ASSERT_CUDA(cuEventRecord(event, stream));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  word->store(1);
  ASSERT_CUDA(cuEventSynchronize(event));
  EXPECT_CUDA(CUDA_SUCCESS, cuEventQuery(event));
}

TEST_F(Events, PollsStillObeyCapturesAndDestruction) {
  hold();
  const CUevent event = record(stream);
  const CUstream captured = create_stream(0);
  ASSERT_CUDA(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(event));
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(captured, &graph));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  ASSERT_CUDA(cuEventDestroy(event));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
  word->store(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
}

TEST_F(Events, PollingInALoopSeesACopyComplete) {
  const auto values = pattern(3 * kMiB, 9);
  const CUdeviceptr memory = allocate(0, values.size());
  std::uint8_t* const host = allocate_host(values.size());
  std::fill_n(host, values.size(), std::uint8_t{0xEE});
  write(memory, values);
  ASSERT_CUDA(cuMemcpyAsync(device(host), memory, values.size(), stream));
  const CUevent event = record(stream);
  while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
  }
  EXPECT_TRUE(std::equal(values.begin(), values.end(), host));
}

}  // namespace
}  // namespace polypath::sim::test
