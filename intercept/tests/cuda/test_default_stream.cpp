// The default stream between GPUs: an offloaded copy waits for both GPUs' default streams, and
// both wait for it.
#include "shim_test.hpp"

namespace polypath::preload::test {
namespace {

class DefaultStream : public ShimTest {
 protected:
  void SetUp() override {
    ShimTest::SetUp();
    engine.answer = Answer::take;
    slow_host = allocate_host(kSlow);
    slow = allocate(1, kSlow);
    renew();
    engine.answer = Answer::take;
  }

  /// Work on GPU 1's stream that takes far longer than the copies that follow it; an event at its
  /// end.
  CUevent keep_busy(CUstream stream) {
    const CUevent end = create_event(1);
    use(1);
    EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD8Async(slow, 1, 1, stream));
    const auto way = engine.answer;
    engine.answer = Answer::leave;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(slow, device(slow_host), kSlow, stream));
    engine.answer = way;
    EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(end, stream));
    use(0);
    return end;
  }
  CUresult query(int gpu, CUstream stream) {
    use(gpu);
    const CUresult result = cuStreamQuery(stream);
    use(0);
    return result;
  }

  static constexpr std::size_t kSlow = 64 * kMiB;
  std::uint8_t* slow_host = nullptr;
  CUdeviceptr slow = 0;
};

TEST_F(DefaultStream, WaitsForTheOtherGpus) {
  const CUstream blocking = create_stream(1, CU_STREAM_DEFAULT);
  for (const CUstream other : {CUstream{nullptr}, blocking}) {
    for (const auto& [dst, src] : {std::pair{far, near}, {near, far}}) {
      const CUevent end = keep_busy(other);
      EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(end));
      EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(dst, src, kLarge, nullptr));
      EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
      EXPECT_CUDA(CUDA_SUCCESS, cuEventQuery(end));
    }
  }
}

TEST_F(DefaultStream, OtherGpusWaitForIt) {
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(far, near, kLarge, nullptr));
  use(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD8Async(slow, 1, 1, nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, query(0, nullptr));
}

// The driver's own copy orders itself.
TEST_F(DefaultStream, OrderFailsAfterCopy_DriverCopies) {
  engine.during_copy = [] { polypath_sim_fail_context(1, CUDA_ERROR_LAUNCH_FAILED); };
  const auto copies = polypath_sim_copies();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(far, near, kLarge, nullptr));
  engine.during_copy = [] {};
  polypath_sim_fail_context(1, CUDA_SUCCESS);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
  EXPECT_EQ(copies + 2, polypath_sim_copies());
}

/// Whether or not the engine would take the copy.
TEST_F(DefaultStream, CaptureOnOtherGpu_GoesOn) {
  const CUstream blocking = create_stream(1, CU_STREAM_DEFAULT);
  for (const Answer answer : {Answer::take, Answer::leave}) {
    engine.answer = answer;
    use(1);
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    use(0);
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(far, near, kLarge, nullptr));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
    EXPECT_EQ(bytes_at(pointer(near), kLarge), bytes_at(pointer(far), kLarge));
    EXPECT_TRUE(engine.copies.empty());
    CUgraph graph = nullptr;
    use(1);
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamEndCapture(blocking, &graph));
    EXPECT_CUDA(CUDA_SUCCESS, cuGraphDestroy(graph));
    use(0);
    renew();
  }
}

TEST_F(DefaultStream, LeavesTheContextAndNoEvents) {
  const auto events = polypath_sim_live_events();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(far, near, kLarge, nullptr));
  CUcontext current = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxGetCurrent(&current));
  EXPECT_EQ(context(0), current);
  EXPECT_EQ(events, polypath_sim_live_events());
}

// Only the legacy default stream, and only between GPUs.
TEST_F(DefaultStream, OtherStreamsAndCopiesPassTheBusyOne) {
  const CUstream own = create_stream(0);
  const CUevent end = keep_busy(nullptr);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(far, near, kLarge, own));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(own));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(end));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(far, near, kLarge, CU_STREAM_PER_THREAD));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(CU_STREAM_PER_THREAD));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(end));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyHtoDAsync(near, host, kLarge, nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(end));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyHtoDAsync(far, host, kLarge, nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyDtoH(host, far, kLarge));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuEventQuery(end)) << "host memory is no other GPU's";
  EXPECT_EQ(6U, engine.copies.size()) << "with the one that keeps GPU 1 busy";
}

}  // namespace
}  // namespace polypath::preload::test
