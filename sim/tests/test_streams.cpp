// The order of work: streams, events, the default stream.
#include <thread>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

constexpr std::size_t kStreamSize = 1000 * 1000;  // 10 us at 100 GB/s

class Streams : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    enable_peer(0, 1);
    src = allocate(0, kStreamSize);
    dst = allocate(1, kStreamSize);
    far = allocate(2, kStreamSize);
  }

  void copy(CUstream stream) {
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(dst, src, kStreamSize, stream));
  }

  CUdeviceptr src = 0;
  CUdeviceptr dst = 0;
  CUdeviceptr far = 0;
};

TEST_F(Streams, CopyReturnsAtOnceAndSyncTakesTheTime) {
  const CUstream stream = create_stream(0);
  const double begin = polypath_sim_clock_us();
  copy(stream);
  EXPECT_DOUBLE_EQ(begin + 1, polypath_sim_clock_us());
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_NEAR(begin + 15, polypath_sim_clock_us(), 1e-9);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
}

TEST_F(Streams, QueriesMakeProgress) {
  const CUstream stream = create_stream(0);
  copy(stream);
  const CUevent done = record(stream);
  int queries = 0;
  while (cuEventQuery(done) == CUDA_ERROR_NOT_READY) ++queries;
  EXPECT_EQ(26, queries);  // the copy ends at 15; the first query is made at 1.5, each takes 0.5
}

TEST_F(Streams, CopiesOnOneStreamRunInTurn) {
  const CUstream stream = create_stream(0);
  const CUevent begin = record(stream);
  copy(stream);
  copy(stream);
  EXPECT_NEAR(0.5 + 5 + 10 + 2 + 10, elapsed_us(begin, record(stream)), 1e-2);
}

TEST_F(Streams, CopiesOnTwoStreamsShareTheLink) {
  const CUstream a = create_stream(0);
  const CUstream b = create_stream(0);
  const CUevent begin = record(a);
  copy(a);
  copy(b);
  const CUevent end_a = record(a);
  const CUevent end_b = record(b);
  // a alone for 1 us, then both at half the rate; then b alone for its last microsecond.
  EXPECT_NEAR(0.5 + 5 + 1 + 18, elapsed_us(begin, end_a), 1e-2);
  EXPECT_NEAR(0.5 + 5 + 1 + 18 + 1, elapsed_us(begin, end_b), 1e-2);
}

TEST_F(Streams, WaitUsesTheRecordBeforeIt) {
  const CUstream a = create_stream(0);
  const CUstream b = create_stream(0);
  const CUevent event = create_event(0);
  const CUevent begin = record(a);
  copy(a);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(event, a));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamWaitEvent(b, event, 0));
  copy(a);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(event, a));  // must not disturb the wait
  EXPECT_NEAR(0.5 + 15 + 3, elapsed_us(begin, record(b)), 1e-2);
}

TEST_F(Streams, UnrecordedEvent_IsNotWaitedFor) {
  const CUstream a = create_stream(0);
  const CUstream b = create_stream(0);
  const CUevent event = create_event(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventQuery(event));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamWaitEvent(b, event, 0));
  copy(a);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(event, a));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(b));
}

TEST_F(Streams, EventRecordedAgain_IsNotReady) {
  const CUstream stream = create_stream(0);
  const CUevent event = record(stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventSynchronize(event));
  copy(stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(event, stream));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(event));
}

TEST_F(Streams, StreamWaitsForEventOfOtherGpu) {
  const CUstream a = create_stream(0);
  const CUstream b = create_stream(1);
  const CUevent begin = record(a);
  copy(a);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamWaitEvent(b, record(a), 0));
  use(1);
  const CUevent end = create_event(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(end, b));
  EXPECT_CUDA(CUDA_SUCCESS, cuEventSynchronize(end));
  float milliseconds = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, begin, end));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(a));
}

TEST_F(Streams, DefaultStreamWaitsOnlyForBlocking) {
  const CUstream blocking = create_stream(0, CU_STREAM_DEFAULT);
  const CUstream apart = create_stream(0);
  copy(blocking);
  const CUevent on_default = record(nullptr);
  copy(apart);
  copy(apart);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventSynchronize(on_default));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(blocking));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(apart));
}

TEST_F(Streams, BlockingStreamsWaitForTheDefaultStream) {
  const CUstream blocking = create_stream(0, CU_STREAM_DEFAULT);
  const CUstream apart = create_stream(0);
  copy(CU_STREAM_LEGACY);
  const CUevent ordered = record(blocking);
  const CUevent free = record(apart);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventSynchronize(free));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuEventSynchronize(ordered));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(nullptr));
}

TEST_F(Streams, DefaultStreamIsPerContext) {
  copy(nullptr);
  use(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(nullptr));
}

TEST_F(Streams, EachThreadHasItsOwnPerThreadStream) {
  copy(CU_STREAM_PER_THREAD);
  std::thread([this] {
    use(0);
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
}

TEST_F(Streams, CallbackRunsInStreamOrder) {
  struct Seen {
    const std::uint8_t* memory;
    std::vector<std::uint8_t> values;
  };
  std::uint8_t* const host = allocate_host(kStreamSize);
  *host = 0xA5;
  Seen seen{host, {}};
  const auto look = [](CUstream, CUresult result, void* data) {
    EXPECT_CUDA(CUDA_SUCCESS, result);
    auto& what = *static_cast<Seen*>(data);
    what.values.push_back(*what.memory);
  };
  const CUstream stream = create_stream(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD8Async(src, 0x42, kStreamSize, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamAddCallback(stream, look, &seen, 0));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyDtoHAsync(host, src, kStreamSize, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamAddCallback(stream, look, &seen, 0));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ((std::vector<std::uint8_t>{0xA5, 0x42}), seen.values);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(stream, nullptr, &seen, 0));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeHost(host));
}

TEST_F(Streams, WorkOfADestroyedStreamGoesOn) {
  const CUstream stream = create_stream(0);
  copy(stream);
  const CUevent end = record(stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamDestroy(stream));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(end));
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
  EXPECT_CUDA(CUDA_SUCCESS, cuEventQuery(end));
}

TEST_F(Streams, EventOfOtherContext_CannotBeRecorded) {
  const CUstream other = create_stream(1);
  const CUevent event = create_event(0);
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, other));
}

TEST_F(Streams, DestroyedAndForeignHandlesAreRecognised) {
  const CUstream stream = create_stream(0);
  const CUevent event = create_event(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamDestroy(stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuEventDestroy(event));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuMemcpyAsync(dst, src, kStreamSize, stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(event));
  const CUevent next = create_event(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventQuery(next));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(std::bit_cast<CUevent>(this)));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(std::bit_cast<CUstream>(next)));
}

TEST_F(Streams, EventWithoutTiming_HasNoTime) {
  const CUstream stream = create_stream(0);
  const CUevent event = create_event(0, CU_EVENT_DISABLE_TIMING);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(event, stream));
  float milliseconds = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, event, event));
}

TEST_F(Streams, TimeBetweenIncompleteEventsIsNotReady) {
  const CUstream stream = create_stream(0);
  const CUevent begin = record(stream);
  copy(stream);
  const CUevent end = record(stream);
  float milliseconds = 0;
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&milliseconds, begin, end));
}

}  // namespace
}  // namespace polypath::sim::test
