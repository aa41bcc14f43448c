// Programs on the stand-in move their bytes on the simulated driver.
#include <gtest/gtest.h>

#include <array>
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

/// From one memory to the next, each fresh, by another function each time.
void pass_on(decltype(&cudaMemcpy) copy, decltype(&cudaMemcpyAsync) copy_async) {
  const std::vector<std::uint64_t> sent = random_words();
  std::array<void*, 4> on_gpu0{};
  std::array<void*, 4> on_gpu1{};
  for (void*& memory : on_gpu1) memory = allocate_on(1);
  for (void*& memory : on_gpu0) memory = allocate_on(0);
  void* pinned = nullptr;
  ASSERT_EQ(0, cudaHostAlloc(&pinned, kBytes, 0));
  cudaStream_t stream = nullptr;
  ASSERT_EQ(0, cudaStreamCreateWithFlags(&stream, kNonBlocking));

  ASSERT_EQ(0, copy(on_gpu0[0], sent.data(), kBytes, cudaMemcpyHostToDevice));
  ASSERT_EQ(0, copy(on_gpu0[1], on_gpu0[0], kBytes, cudaMemcpyDeviceToDevice));
  ASSERT_EQ(0, copy(on_gpu1[0], on_gpu0[1], kBytes, cudaMemcpyDefault));
  // A copy within devices is not waited for, nor do other streams wait for it.
  ASSERT_EQ(0, cudaDeviceSynchronize());
  ASSERT_EQ(0, copy_async(on_gpu1[1], on_gpu1[0], kBytes, cudaMemcpyDeviceToDevice, stream));
  ASSERT_EQ(0, copy_async(pinned, on_gpu1[1], kBytes, cudaMemcpyDeviceToHost, stream));
  ASSERT_EQ(0, copy_async(on_gpu0[2], pinned, kBytes, cudaMemcpyHostToDevice, stream));
  ASSERT_EQ(0, copy_async(on_gpu1[2], on_gpu0[2], kBytes, cudaMemcpyDefault, stream));
  ASSERT_EQ(0, cudaMemcpyPeerAsync(on_gpu0[3], 0, on_gpu1[2], 1, kBytes, stream));
  ASSERT_EQ(0, cudaStreamSynchronize(stream));
  std::vector<std::uint64_t> received(sent.size());
  ASSERT_EQ(0, copy(received.data(), on_gpu0[3], kBytes, cudaMemcpyDeviceToHost));
  EXPECT_EQ(sent, received);

  EXPECT_EQ(0, cudaStreamDestroy(stream));
  for (void* const memory : on_gpu0) EXPECT_EQ(0, cudaFree(memory));
  for (void* const memory : on_gpu1) EXPECT_EQ(0, cudaFree(memory));
  EXPECT_EQ(0, cudaFreeHost(pinned));
}

TEST(CudartStandin, EveryCopyMovesTheBytes) { pass_on(cudaMemcpy, cudaMemcpyAsync); }

TEST(CudartStandin, PerThreadVariants_MoveTheBytes) {
  pass_on(cudaMemcpy_ptds, cudaMemcpyAsync_ptsz);
}

TEST(CudartStandin, ThereAreTheDevicesOfTheNode) {
  int count = 0;
  ASSERT_EQ(0, cudaGetDeviceCount(&count));
  EXPECT_EQ(4, count);
  EXPECT_NE(0, cudaSetDevice(4));
}

}  // namespace
