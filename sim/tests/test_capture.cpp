// Stream capture: nothing runs, everything is counted, misuse is refused.
#include <thread>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

class CaptureTest : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    src = allocate(0, kMiB);
    dst = allocate(0, kMiB);
    write(src, pattern(kMiB, 1));
    stream = create_stream(0);
    side = create_stream(0);
    event = create_event(0);
    polypath_sim_reset_counters();
    ASSERT_CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  }

  static CUstreamCaptureStatus status(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamIsCapturing(stream, &status));
    return status;
  }

  /// Ends the capture; the number of its nodes.
  std::uint64_t end() {
    CUgraph graph = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamEndCapture(stream, &graph));
    const std::uint64_t nodes = polypath_sim_graph_nodes(graph);
    EXPECT_EQ(1U, polypath_sim_live_graphs());
    EXPECT_CUDA(CUDA_SUCCESS, cuGraphDestroy(graph));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    return nodes;
  }

  CUdeviceptr src = 0;
  CUdeviceptr dst = 0;
  CUstream stream = nullptr;
  CUstream side = nullptr;
  CUevent event = nullptr;
};

TEST_F(CaptureTest, CopiesAreRecordedAndNotRun) {
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(stream));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status(side));
  ASSERT_CUDA(cuMemcpyAsync(dst, src, kMiB, stream));
  ASSERT_CUDA(cuMemcpyAsync(dst, src, kMiB, stream));
  EXPECT_EQ(2U, end());
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status(stream));
  EXPECT_EQ(0U, polypath_sim_copies());
  EXPECT_EQ(std::vector<std::uint8_t>(kMiB, 0xC3), peek(dst, kMiB));
}

TEST_F(CaptureTest, EventWait_CapturesOtherStream) {
  ASSERT_CUDA(cuEventRecord(event, stream));
  ASSERT_CUDA(cuStreamWaitEvent(side, event, 0));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(side));
  ASSERT_CUDA(cuMemcpyAsync(dst, src, kMiB, side));
  const CUevent join = create_event(0);
  ASSERT_CUDA(cuEventRecord(join, side));
  ASSERT_CUDA(cuStreamWaitEvent(stream, join, 0));
  EXPECT_EQ(1U, end());
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status(side));
}

TEST_F(CaptureTest, UnjoinedWorkIsRefused) {
  ASSERT_CUDA(cuEventRecord(event, stream));
  ASSERT_CUDA(cuStreamWaitEvent(side, event, 0));
  ASSERT_CUDA(cuMemcpyAsync(dst, src, kMiB, side));
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(nullptr, graph);
}

TEST_F(CaptureTest, WaitingIsRefused) {
  ASSERT_CUDA(cuEventRecord(event, stream));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(stream));
  EXPECT_CUDA(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
  EXPECT_CUDA(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(event));
  EXPECT_EQ(0U, end());
}

TEST_F(CaptureTest, ForbiddenCall_InvalidatesCapture) {
  CUdeviceptr address = 0;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&address, kMiB));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status(stream));
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemAlloc(&address, kMiB));
}

TEST_F(CaptureTest, AskingForTheIdOfItsStreamInvalidatesIt) {
  unsigned long long id = 0;
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamGetId(side, &id));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamGetId(stream, &id));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status(stream));
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
}

TEST_F(CaptureTest, RelaxedThread_MayAllocate) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_CUDA(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
  CUdeviceptr address = 0;
  EXPECT_CUDA(CUDA_SUCCESS, cuMemAlloc(&address, kMiB));
  ASSERT_CUDA(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(0U, end());
}

TEST_F(CaptureTest, AnotherThreadIsOnlyBoundByAGlobalCapture) {
  const auto allocate_elsewhere = [this] {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      use(0);
      CUdeviceptr address = 0;
      result = cuMemAlloc(&address, kMiB);
    }).join();
    return result;
  };
  EXPECT_CUDA(CUDA_SUCCESS, allocate_elsewhere());
  ASSERT_CUDA(cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, allocate_elsewhere());
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(side, &graph));
  EXPECT_EQ(0U, end());
}

TEST_F(CaptureTest, CapturedEvent_IgnoresOlderRecord) {
  const CUevent event_of_side = record(side);
  ASSERT_CUDA(cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CUDA(cuEventRecord(event_of_side, side));
  EXPECT_EQ(0U, end());
  ASSERT_CUDA(cuCtxSynchronize());
  EXPECT_CUDA(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event_of_side));
}

TEST_F(CaptureTest, DependenciesFromOutsideAreRefused) {
  const CUevent outside = record(side);
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, outside, 0));
  EXPECT_EQ(0U, end());
}

TEST_F(CaptureTest, RefusesDefaultStreamMeanwhile) {
  const CUstream blocking = create_stream(0, CU_STREAM_DEFAULT);
  ASSERT_CUDA(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemcpyAsync(dst, src, kMiB, nullptr));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
              cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
}

TEST_F(CaptureTest, OnlyItsOriginEndsIt) {
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(side, &graph));
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE,
              cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CUDA(cuEventRecord(event, stream));
  ASSERT_CUDA(cuStreamWaitEvent(side, event, 0));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(side, &graph));
}

TEST_F(CaptureTest, GraphInCapture_CannotBeDestroyed) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  ASSERT_CUDA(cuMemcpyAsync(dst, src, kMiB, stream));
  ASSERT_CUDA(
      cuStreamGetCaptureInfo_v3(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroy(graph));
  EXPECT_EQ(1U, end());
}

TEST_F(CaptureTest, PerThreadDefaultStream_CanBeCaptured) {
  EXPECT_EQ(0U, end());
  ASSERT_CUDA(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(nullptr, &status));
  ASSERT_CUDA(cuStreamIsCapturing(CU_STREAM_PER_THREAD, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status) << "a question changes nothing";
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemcpyAsync(dst, src, kMiB, nullptr));
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
              cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(dst, src, kMiB, nullptr));
}

TEST_F(CaptureTest, ContextEnd_EndsCapture) {
  EXPECT_EQ(0U, end());
  CUcontext own = nullptr;
  ASSERT_CUDA(cuCtxCreate_v4(&own, nullptr, 0, 0));
  ASSERT_CUDA(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  ASSERT_CUDA(cuCtxDestroy_v2(own));
  use(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize()) << "nothing is in capture";
}

}  // namespace
}  // namespace polypath::sim::test
