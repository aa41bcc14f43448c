// Streams held back by a value in memory.
#include <atomic>
#include <thread>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

class WaitValue : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    word = reinterpret_cast<std::atomic<std::uint32_t>*>(allocate_host(4096));
    word->store(0);
    stream = create_stream(0);
    src = allocate(0, kMiB);
    dst = allocate(0, kMiB);
  }

  CUresult wait_for(std::uint32_t value, unsigned flags) {
    return cuStreamWaitValue32(stream, device(word), value, flags);
  }

  std::atomic<std::uint32_t>* word = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr src = 0;
  CUdeviceptr dst = 0;
};

TEST_F(WaitValue, OtherStreamsPassByAHeldOne) {
  ASSERT_CUDA(wait_for(1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CUDA(cuMemcpyAsync(dst, src, kMiB, stream));
  const CUstream other = create_stream(0);
  ASSERT_CUDA(cuMemcpyAsync(dst, src, kMiB, other));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(other));
  polypath_sim_advance_us(1e6);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  const double begin = polypath_sim_clock_us();
  word->store(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_GT(polypath_sim_clock_us(), begin + 5);  // the copy began after the value came
}

TEST_F(WaitValue, BlockedThread_LetsOthersIssue) {
  ASSERT_CUDA(wait_for(1, CU_STREAM_WAIT_VALUE_EQ));
  const CUstream released_by = create_stream(0);
  std::thread other([&] {
    use(0);
    // The lock is free while the first thread blocks.
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(dst, src, kMiB, released_by));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(released_by));
    word->store(1);
  });
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  other.join();
}

TEST_F(WaitValue, GreaterValue_SatisfiesGeqNotEq) {
  word->store(6);
  ASSERT_CUDA(wait_for(5, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
  ASSERT_CUDA(wait_for(5, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  word->store(5);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
}

TEST_F(WaitValue, GeqCountsInACircle) {
  word->store(1);
  ASSERT_CUDA(wait_for(0xFFFFFFFF, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
}

TEST_F(WaitValue, CopyIntoDeviceMemory_ReleasesWait) {
  const CUdeviceptr flag = allocate(0, 4);
  write(flag, {0, 0, 0, 0});
  ASSERT_CUDA(cuStreamWaitValue32(stream, flag, 7, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  word->store(7);
  ASSERT_CUDA(cuMemcpyAsync(flag, device(word), 4, create_stream(0)));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
}

TEST_F(WaitValue, UnknownOrOddAddress_IsRefused) {
  std::uint32_t local = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(stream, device(&local), 0, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(stream, device(word) + 1, 0, 0));
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, wait_for(0, CU_STREAM_WAIT_VALUE_NOR));
}

TEST_F(WaitValue, AnotherStreamWritesTheValue) {
  const CUdeviceptr flag = allocate(1, 8);
  write(flag, std::vector<std::uint8_t>(8));
  const CUstream writer = create_stream(0);
  const auto values = pattern(kMiB, 9);
  write(src, values);
  constexpr std::uint64_t kValue = 0x123456789ABCDEF0;
  ASSERT_CUDA(cuStreamWaitValue64(stream, flag, kValue, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CUDA(cuMemcpyAsync(dst, src, kMiB, stream));
  polypath_sim_advance_us(1e5);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  ASSERT_CUDA(cuStreamWriteValue64(writer, flag, kValue - 1, 0));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(writer));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  ASSERT_CUDA(cuStreamWriteValue64(writer, flag, kValue, 0));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_TRUE(values == peek(dst, kMiB));
}

TEST_F(WaitValue, ValueIsWrittenInStreamOrder) {
  ASSERT_CUDA(wait_for(1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CUDA(cuStreamWriteValue32(stream, device(word + 1), 5, 0));
  word[1] = 0;
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  EXPECT_EQ(0U, word[1]);
  word->store(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(5U, word[1]);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(stream, device(word) + 1, 5, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(stream, device(word) + 4, 5, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64(stream, device(word), 5, 4));
}

TEST_F(WaitValue, HostFunction_RunsInStreamOrder) {
  ASSERT_CUDA(wait_for(1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CUDA(cuLaunchHostFunc(
      stream, [](void* data) { static_cast<std::atomic<std::uint32_t>*>(data)->store(2); }, word));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  EXPECT_EQ(0U, word->load());
  word->store(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(2U, word->load());
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(stream, nullptr, word));
}

TEST_F(WaitValue, HostFunction_HoldsOnlyItsStream) {
  ASSERT_CUDA(cuLaunchHostFunc(
      stream,
      [](void* data) {
        while (static_cast<std::atomic<std::uint32_t>*>(data)->load() == 0)
          std::this_thread::yield();
      },
      word));
  const CUstream other = create_stream(0);
  ASSERT_CUDA(cuMemcpyAsync(dst, src, kMiB, other));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(other));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  word->store(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace polypath::sim::test
