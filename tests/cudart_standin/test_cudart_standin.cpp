// Programs on the stand-in move their bytes on the simulated driver.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "cudart_standin.h"

namespace {

constexpr std::size_t kBytes = 1 << 20;
constexpr unsigned kNonBlocking = 1;

std::vector<std::uint64_t> random_words() {
  std::mt19937_64 random(std::random_device{}());
  std::vector<std::uint64_t> words(kBytes / sizeof(std::uint64_t));
  for (std::uint64_t& word : words) word = random();
  return words;
}

void* allocate_on(int device) {
  void* address = nullptr;
  EXPECT_EQ(0, cudaSetDevice(device));
  EXPECT_EQ(0, cudaMalloc(&address, kBytes));
  return address;
}

TEST(CudartStandin, EveryCopyMovesTheBytes) {
  const std::vector<std::uint64_t> sent = random_words();
  void* const on_gpu1 = allocate_on(1);
  void* const beside = allocate_on(1);
  void* const on_gpu0 = allocate_on(0);
  void* pinned = nullptr;
  ASSERT_EQ(0, cudaHostAlloc(&pinned, kBytes, 0));
  cudaStream_t stream = nullptr;
  ASSERT_EQ(0, cudaStreamCreateWithFlags(&stream, kNonBlocking));

  ASSERT_EQ(0, cudaMemcpy(on_gpu0, sent.data(), kBytes, cudaMemcpyHostToDevice));
  ASSERT_EQ(0, cudaMemcpyPeerAsync(on_gpu1, 1, on_gpu0, 0, kBytes, stream));
  ASSERT_EQ(0, cudaMemcpyAsync(beside, on_gpu1, kBytes, cudaMemcpyDeviceToDevice, stream));
  ASSERT_EQ(0, cudaMemcpyAsync(pinned, beside, kBytes, cudaMemcpyDeviceToHost, stream));
  ASSERT_EQ(0, cudaMemcpyAsync(on_gpu0, pinned, kBytes, cudaMemcpyHostToDevice, stream));
  ASSERT_EQ(0, cudaMemcpyAsync(on_gpu1, on_gpu0, kBytes, cudaMemcpyDefault, stream));
  ASSERT_EQ(0, cudaStreamSynchronize(stream));

  std::vector<std::uint64_t> received(sent.size());
  ASSERT_EQ(0, cudaMemcpy(received.data(), on_gpu1, kBytes, cudaMemcpyDefault));
  EXPECT_EQ(sent, received);

  EXPECT_EQ(0, cudaStreamDestroy(stream));
  for (void* const address : {on_gpu0, on_gpu1, beside}) EXPECT_EQ(0, cudaFree(address));
  EXPECT_EQ(0, cudaFreeHost(pinned));
}

TEST(CudartStandin, ThereAreTheDevicesOfTheNode) {
  int count = 0;
  ASSERT_EQ(0, cudaGetDeviceCount(&count));
  EXPECT_EQ(4, count);
  EXPECT_NE(0, cudaSetDevice(4));
}

}  // namespace
