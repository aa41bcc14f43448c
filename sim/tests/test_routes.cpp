// Which links a copy takes, how fast it is there, and when the driver has to bounce it.
#include <algorithm>
#include <vector>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

constexpr std::size_t kRouteSize = 50 * 1000 * 1000;  // 0.5 ms at 100 GB/s: costs of calls vanish

class Routes : public SimTest {
 protected:
  /// Rate of one copy on a stream of `issuer`, GB/s.
  double rate(CUdeviceptr dst, CUdeviceptr src, int issuer) {
    const CUstream stream = create_stream(issuer);
    polypath_sim_reset_counters();
    const double begin = polypath_sim_clock_us();
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(dst, src, kRouteSize, stream));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
    return rate_gbps(kRouteSize, polypath_sim_clock_us() - begin);
  }
};

TEST_F(Routes, PeerCopyUsesItsLink) {
  enable_peer(0, 1);
  EXPECT_NEAR(100, rate(allocate(1, kRouteSize), allocate(0, kRouteSize), 0), 2);
  EXPECT_EQ(kRouteSize, polypath_sim_link_bytes("gpu0", "gpu1"));
  EXPECT_EQ(1U, polypath_sim_link_copies("gpu0", "gpu1"));
  EXPECT_EQ(0U, polypath_sim_link_bytes("gpu1", "gpu0"));
  EXPECT_EQ(1U, polypath_sim_copies());
  EXPECT_EQ(0U, polypath_sim_bounced_copies());
}

TEST_F(Routes, WithoutPeerAccessTheDriverBouncesTheCopy) {
  EXPECT_NEAR(20 * 37 / 55.4, rate(allocate(1, kRouteSize), allocate(0, kRouteSize), 0), 1);
  EXPECT_EQ(1U, polypath_sim_bounced_copies());
  EXPECT_EQ(kRouteSize, polypath_sim_link_bytes("gpu0", "host0"));
  EXPECT_EQ(kRouteSize, polypath_sim_link_bytes("host0", "gpu1"));
  EXPECT_EQ(0U, polypath_sim_link_bytes("gpu0", "gpu1"));
}

TEST_F(Routes, PeerAccessGoesOneWay) {
  enable_peer(0, 1);
  rate(allocate(1, kRouteSize), allocate(0, kRouteSize), 1);
  EXPECT_EQ(1U, polypath_sim_bounced_copies());
}

TEST_F(Routes, WithoutALinkTheDriverBouncesTheCopy) {
  rate(allocate(2, kRouteSize), allocate(1, kRouteSize), 1);
  EXPECT_EQ(1U, polypath_sim_bounced_copies());
  EXPECT_EQ(kRouteSize, polypath_sim_link_bytes("gpu1", "host0"));
  EXPECT_EQ(kRouteSize, polypath_sim_link_bytes("host1", "gpu2"));
}

TEST_F(Routes, ThirdGpusCopy_PassesThroughThatGpu) {
  const CUdeviceptr src = allocate(1, kRouteSize);
  const CUdeviceptr dst = allocate(2, kRouteSize);
  enable_peer(0, 1);
  rate(dst, src, 0);
  EXPECT_EQ(1U, polypath_sim_bounced_copies());  // it does not reach GPU 2
  enable_peer(0, 2);
  EXPECT_NEAR(50, rate(dst, src, 0), 1);
  EXPECT_EQ(0U, polypath_sim_bounced_copies());
  EXPECT_EQ(kRouteSize, polypath_sim_link_bytes("gpu1", "gpu0"));
  EXPECT_EQ(kRouteSize, polypath_sim_link_bytes("gpu0", "gpu2"));
}

TEST_F(Routes, HostMemoryLiesWithTheCurrentGpu) {
  const CUdeviceptr memory = allocate(2, kRouteSize);
  use(2);
  const CUdeviceptr near = device(allocate_host(kRouteSize));
  use(0);
  EXPECT_NEAR(20, rate(memory, near, 2), 0.2);
  EXPECT_EQ(kRouteSize, polypath_sim_link_bytes("host1", "gpu2"));
  EXPECT_EQ(0U, polypath_sim_link_bytes("host0", "gpu2"));
}

TEST_F(Routes, BothDirectionsShareAPort) {
  const CUdeviceptr memory = allocate(0, 2 * kRouteSize);
  const CUdeviceptr host = device(allocate_host(2 * kRouteSize));
  const double begin = polypath_sim_clock_us();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(memory, host, kRouteSize, create_stream(0)));
  EXPECT_CUDA(CUDA_SUCCESS,
              cuMemcpyAsync(host + kRouteSize, memory + kRouteSize, kRouteSize, create_stream(0)));
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
  EXPECT_NEAR(30, rate_gbps(2 * kRouteSize, polypath_sim_clock_us() - begin), 0.3);
}

TEST_F(Routes, PageableSource_IsReadAtReturn) {
  std::vector<std::uint8_t> memory(kRouteSize, 9);
  const CUdeviceptr dst = allocate(0, kRouteSize);
  write(dst, std::vector<std::uint8_t>(kRouteSize, 1));
  polypath_sim_reset_counters();
  const CUstream stream = create_stream(0);
  const double begin = polypath_sim_clock_us();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(dst, device(memory.data()), kRouteSize, stream));
  EXPECT_LT(rate_gbps(kRouteSize, polypath_sim_clock_us() - begin), 20 / 2);
  std::ranges::fill(memory, 7);
  // What the driver has in its buffer is still on its way.
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  EXPECT_EQ(9, peek(dst, 1)[0]);
  EXPECT_EQ(1, peek(dst + kRouteSize - 1, 1)[0]);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<std::uint8_t>(kRouteSize, 9), peek(dst, kRouteSize));
  EXPECT_EQ(1U, polypath_sim_pageable_copies());
  EXPECT_EQ(kRouteSize, polypath_sim_link_bytes("host0", "gpu0"));
}

TEST_F(Routes, PageableWrite_OrdersBlockingStreamsOnly) {
  constexpr std::size_t kBytes = 64 * kKiB;
  const CUdeviceptr memory = allocate(0, kBytes);
  write(memory, std::vector<std::uint8_t>(kBytes, 1));
  std::vector<std::uint8_t> values(kBytes, 9);
  const auto first_sent_behind_it = [&](unsigned flags) {
    std::uint8_t* const sent = allocate_host(1);
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpy(memory, device(values.data()), kBytes));
    const CUstream stream = create_stream(0, flags);
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(device(sent), memory, 1, stream));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    return *sent;
  };
  EXPECT_EQ(1, first_sent_behind_it(CU_STREAM_NON_BLOCKING));
  std::ranges::fill(values, 5);
  EXPECT_EQ(5, first_sent_behind_it(CU_STREAM_DEFAULT));
}

TEST_F(Routes, PageableDestination_IsFullAtReturn) {
  const CUdeviceptr src = allocate(0, kRouteSize);
  write(src, std::vector<std::uint8_t>(kRouteSize, 9));
  std::vector<std::uint8_t> memory(kRouteSize, 1);
  EXPECT_CUDA(CUDA_SUCCESS,
              cuMemcpyAsync(device(memory.data()), src, kRouteSize, create_stream(0)));
  EXPECT_EQ(std::vector<std::uint8_t>(kRouteSize, 9), memory);
}

TEST_F(Routes, SyncCopyFromHostMemory_Blocks) {
  const CUdeviceptr a = allocate(0, kRouteSize);
  const double begin = polypath_sim_clock_us();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpy(a, device(allocate_host(kRouteSize)), kRouteSize));
  EXPECT_GT(polypath_sim_clock_us(), begin + 30);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(nullptr));
}

TEST_F(Routes, SyncCopyInDeviceMemory_DoesNotBlock) {
  const CUdeviceptr a = allocate(0, kRouteSize);
  const CUdeviceptr b = allocate(0, kRouteSize);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpy(b, a, kRouteSize));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
}

}  // namespace
}  // namespace polypath::sim::test
