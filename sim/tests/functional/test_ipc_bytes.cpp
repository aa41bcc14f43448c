// Bytes that cross between processes, both ways, and their routes.
#include <atomic>
#include <chrono>
#include <thread>

#include "ipc_test.hpp"

namespace polypath::sim::test {
namespace {

TEST_F(Ipc, BytesCrossBothWaysOverTheLink) {
  Peer peer;
  const CUipcMemHandle handle = peer.allocate(0, kBytes, 11);
  const CUdeviceptr remote = open(handle, 1);
  const CUdeviceptr local = poisoned(1, kBytes);
  polypath_sim_reset_counters();
  copy(local, remote, kBytes, 1);
  EXPECT_TRUE(pattern(kBytes, 11) == peek(local, kBytes));
  EXPECT_EQ(kBytes, polypath_sim_link_bytes("gpu0", "gpu1"));
  EXPECT_EQ(0U, polypath_sim_bounced_copies());

  write(local, pattern(kBytes, 12));
  polypath_sim_reset_counters();
  copy(remote, local, kBytes, 1);
  EXPECT_EQ(kBytes, polypath_sim_link_bytes("gpu1", "gpu0"));
  EXPECT_EQ(0U, polypath_sim_bounced_copies());
  EXPECT_TRUE(peer.holds(12));
  EXPECT_FALSE(peer.holds(11));
  use(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(remote));
}

TEST_F(Ipc, AnotherProcessOpensOurs) {
  Peer peer;
  const CUdeviceptr local = allocate(0, kBytes);
  write(local, pattern(kBytes, 21));
  CUipcMemHandle handle{};
  ASSERT_CUDA(cuIpcGetMemHandle(&handle, local));
  EXPECT_EQ("ok", peer.exchange(handle, 2, kBytes, 21, 22));
  EXPECT_TRUE(pattern(kBytes, 22) == peek(local, kBytes));
}

TEST_F(Ipc, UnwrittenMemory_HoldsPatternInBoth) {
  Peer peer;
  const CUipcMemHandle handle = peer.allocate(0, kBytes, 1);
  const CUdeviceptr remote = open(handle, 1);
  const CUdeviceptr local = allocate(0, kBytes);  // never written
  CUipcMemHandle own{};
  use(0);
  ASSERT_CUDA(cuIpcGetMemHandle(&own, local));
  EXPECT_EQ("other bytes", peer.exchange(own, 0, kBytes, 1, 2));
  EXPECT_EQ(std::vector<std::uint8_t>(kBytes, 0xC3), peek(local, kBytes));
  EXPECT_TRUE(pattern(kBytes, 1) == peek(remote, kBytes));
}

TEST_F(Ipc, CopyByOtherContext_IsBounced) {
  Peer peer;
  const CUipcMemHandle handle = peer.allocate(0, kBytes, 31);
  const CUdeviceptr remote = open(handle, 1);
  const CUdeviceptr local = poisoned(0, kBytes);
  enable_peer(0, 1);  // does not help
  polypath_sim_reset_counters();
  copy(local, remote, kBytes, 0);
  EXPECT_EQ(1U, polypath_sim_bounced_copies());
  EXPECT_EQ(kBytes, polypath_sim_link_bytes("gpu0", "host0"));
  EXPECT_TRUE(pattern(kBytes, 31) == peek(local, kBytes));

  // Its own import does.
  write(local, std::vector<std::uint8_t>(kBytes, 0xEE));
  const CUdeviceptr own = open(handle, 0);
  polypath_sim_reset_counters();
  copy(local, own, kBytes, 0);
  EXPECT_EQ(0U, polypath_sim_bounced_copies());
  EXPECT_TRUE(pattern(kBytes, 31) == peek(local, kBytes));
}

TEST_F(Ipc, ClosingWaitsForCopiesUnderWay) {
  Peer peer;
  const CUdeviceptr remote = open(peer.allocate(0, kBytes, 41), 1);
  const CUdeviceptr local = poisoned(1, kBytes);
  auto* const word = reinterpret_cast<std::atomic<std::uint32_t>*>(allocate_host(4096));
  word->store(0);
  const CUstream stream = create_stream(1);
  ASSERT_CUDA(cuStreamWaitValue32(stream, device(word), 1, 0));
  ASSERT_CUDA(cuMemcpyAsync(local, remote, kBytes, stream));
  std::thread opener([word] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    word->store(1);
  });
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(remote));
  EXPECT_EQ(1U, word->load());
  EXPECT_TRUE(pattern(kBytes, 41) == peek(local, kBytes));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(local, remote, kBytes, stream));
  opener.join();
}

}  // namespace
}  // namespace polypath::sim::test
