// Many threads at once: each copies, waits and checks; run under the thread sanitizer as well.
#include <thread>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

class Threads : public SimTest {
 protected:
  void round_trips(int gpu, std::uint8_t seed) {
    use(gpu);
    constexpr std::size_t kSize = 100 * kKiB + 1;
    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemAlloc(&memory, kSize));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_CUDA(CUDA_SUCCESS, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    std::uint8_t* const host = allocate_host(kSize);
    for (int i = 0; i < 20; ++i) {
      const auto values = pattern(kSize, static_cast<std::uint8_t>(seed + i));
      std::copy(values.begin(), values.end(), host);
      EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(memory, device(host), kSize, stream));
      EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(event, stream));
      while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
      }
      std::fill_n(host, kSize, std::uint8_t{0});
      EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(device(host), memory, kSize, stream));
      EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
      EXPECT_TRUE(std::equal(values.begin(), values.end(), host));
    }
    EXPECT_CUDA(CUDA_SUCCESS, cuEventDestroy(event));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamDestroy(stream));
    EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(memory));
    EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeHost(host));
  }
};

TEST_F(Threads, EachSeesItsOwnBytes) {
  const auto before = polypath_sim_live_allocations();
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([this, i] { round_trips(i % 3, static_cast<std::uint8_t>(40 * i)); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(before, polypath_sim_live_allocations());
}

}  // namespace
}  // namespace polypath::sim::test
