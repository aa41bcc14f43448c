#include "tune/test_buffer.hpp"

#include "base/error.hpp"
#include "base/units.hpp"
#include "driver/fault_injection.hpp"
#include "node_fixture.hpp"
#include "tune/pattern.hpp"

namespace polypath {
namespace {

using BuffersTest = test::NodeTest;

/// Larger than the block by which device memory is checked, and of an odd size.
constexpr std::uint64_t kBufferBytes = 33 * kMiB + 5;

void write_byte(const CudaDriver& driver, const TestBuffer& buffer, std::uint64_t at,
                std::byte value) {
  const CurrentContext current(driver, buffer.context());
  void* pinned = nullptr;
  POLYPATH_CHECK(driver, mem_host_alloc(&pinned, 1, CU_MEMHOSTALLOC_PORTABLE));
  *static_cast<std::byte*>(pinned) = value;
  POLYPATH_CHECK(driver,
                 memcpy_sync(buffer.address() + at, reinterpret_cast<CUdeviceptr>(pinned), 1));
  POLYPATH_CHECK(driver, mem_free_host(pinned));
}

/// After a failed pop the context is still current.
void leave_all_contexts(const CudaDriver& driver) {
  CUcontext current = nullptr;
  while (driver.ctx_get_current(&current) == CUDA_SUCCESS && current != nullptr)
    driver.ctx_pop_current(&current);
}

TEST_F(BuffersTest, WrongByte_IsFoundAtItsOffset) {
  std::vector<std::byte> expected(kBufferBytes);
  fill_pattern(expected, 5);
  for (const MemoryId memory : discovered_.memories()) {
    TestBuffer buffer(*driver_, discovered_, memory, kBufferBytes);
    buffer.fill(5);
    EXPECT_EQ(buffer.first_difference(5), std::nullopt) << to_string(memory);
    // From the end to the start: the earliest of several counts.
    for (const std::uint64_t at :
         {kBufferBytes - 1, 32 * kMiB, 16 * kMiB, 16 * kMiB - 1, std::uint64_t{0}}) {
      write_byte(*driver_, buffer, at, expected[at] ^ std::byte{0x10});
      EXPECT_EQ(buffer.first_difference(5), at) << to_string(memory);
    }
  }
}

TEST_F(BuffersTest, PoisonIsNotThePattern) {
  for (const MemoryId memory : discovered_.memories()) {
    TestBuffer buffer(*driver_, discovered_, memory, kMiB);
    buffer.fill(9);
    buffer.poison(0x5A);
    const auto at = buffer.first_difference(9);
    ASSERT_TRUE(at) << to_string(memory);
    EXPECT_LT(*at, 8u) << to_string(memory);
  }
}

TEST_F(BuffersTest, CopyIsVerifiedByTheSeedOfItsSource) {
  const std::vector<MemoryId> memories = discovered_.memories();
  TestBuffer src(*driver_, discovered_, memories.front(), kBufferBytes);
  TestBuffer dst(*driver_, discovered_, memories.back(), kBufferBytes);
  src.fill(77);
  dst.poison();
  const Stream stream(*driver_, src.context());
  const CurrentContext current(*driver_, src.context());
  POLYPATH_CHECK(*driver_,
                 memcpy_async(dst.address(), src.address(), kBufferBytes - 1, stream.get()));
  POLYPATH_CHECK(*driver_, stream_synchronize(stream.get()));
  EXPECT_EQ(dst.first_difference(77), kBufferBytes - 1);
  POLYPATH_CHECK(*driver_, memcpy_async(dst.address(), src.address(), kBufferBytes, stream.get()));
  POLYPATH_CHECK(*driver_, stream_synchronize(stream.get()));
  EXPECT_EQ(dst.first_difference(77), std::nullopt);
}

TEST_F(BuffersTest, MissingMemory_IsRefused) {
  const MemoryId missing = MemoryId::gpu(static_cast<int>(discovered_.gpus.size()));
  EXPECT_THROW(TestBuffer(*driver_, discovered_, missing, 1), InvalidArgument);
}

TEST_F(BuffersTest, TooLargeBuffer_ThrowsAndLogsNothing) {
  for (const MemoryId memory : discovered_.memories()) {
    testing::internal::CaptureStderr();
    EXPECT_THROW(TestBuffer(*driver_, discovered_, memory, 1ull << 50), DriverError);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << to_string(memory);
  }
}

TEST_F(BuffersTest, FailedCall_IsAnErrorAndNextBufferWorks) {
  FaultInjector injector(driver_);
  const auto use = [&] {
    TestBuffer buffer(*injector.driver(), discovered_, MemoryId::gpu(0), kMiB);
    buffer.fill(1);
    const bool filled = !buffer.first_difference(1);
    buffer.poison();
    return filled;
  };
  const PrimaryContext keep(*driver_, 0);  // otherwise each turn would create it anew
  EXPECT_TRUE(use());
  const std::uint64_t calls = injector.calls();
  int errors = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    injector.clear();
    injector.fail_call(call, CUDA_ERROR_LAUNCH_FAILED);
    try {
      use();  // succeeds when the call was part of a destructor
    } catch (const DriverError& error) {
      EXPECT_EQ(error.code(), CUDA_ERROR_LAUNCH_FAILED);
      ++errors;
    }
    EXPECT_NE(injector.last_failed(), "") << call;
    leave_all_contexts(*driver_);
  }
  EXPECT_GT(errors, 10);
  EXPECT_TRUE(use());
}

}  // namespace
}  // namespace polypath
