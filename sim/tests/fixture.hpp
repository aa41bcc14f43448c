// Every test starts with fresh primary contexts on all GPUs, GPU 0 current, no peer access; at its
// end they go, with everything in them.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/units.hpp"
#include "pattern.hpp"
#include "polypath_sim.h"

namespace polypath::sim::test {

inline std::string name_of(CUresult result) {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS) return "error " + std::to_string(result);
  return name;
}

#define EXPECT_CUDA(expected, call) \
  EXPECT_EQ(::polypath::sim::test::name_of(expected), ::polypath::sim::test::name_of(call))
#define ASSERT_CUDA(call) \
  ASSERT_EQ(std::string("CUDA_SUCCESS"), ::polypath::sim::test::name_of(call))

class SimTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_CUDA(cuInit(0));
    int count = 0;
    ASSERT_CUDA(cuDeviceGetCount(&count));
    contexts.resize(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i)
      ASSERT_CUDA(cuDevicePrimaryCtxRetain(&contexts[static_cast<std::size_t>(i)], i));
    use(0);
    polypath_sim_reset_counters();
  }

  void TearDown() override {
    for (std::size_t i = 0; i < contexts.size(); ++i)
      EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(static_cast<CUdevice>(i)));
    while (cuCtxPopCurrent(nullptr) == CUDA_SUCCESS) {
    }
    EXPECT_EQ(0U, polypath_sim_live_contexts());
    EXPECT_EQ(0U, polypath_sim_live_streams());
    EXPECT_EQ(0U, polypath_sim_live_events());
  }

  CUcontext context(int gpu) const { return contexts[static_cast<std::size_t>(gpu)]; }
  void use(int gpu) { EXPECT_CUDA(CUDA_SUCCESS, cuCtxSetCurrent(context(gpu))); }

  /// Lets work of `gpu` reach the memory of `peer`.
  void enable_peer(int gpu, int peer) {
    use(gpu);
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxEnablePeerAccess(context(peer), 0));
    use(0);
  }

  CUdeviceptr allocate(int gpu, std::size_t bytes) {
    use(gpu);
    CUdeviceptr address = 0;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemAlloc(&address, bytes));
    use(0);
    return address;
  }

  static std::uint8_t* allocate_host(std::size_t bytes) {
    void* address = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemHostAlloc(&address, bytes, CU_MEMHOSTALLOC_PORTABLE));
    return static_cast<std::uint8_t*>(address);
  }

  CUstream create_stream(int gpu, unsigned flags = CU_STREAM_NON_BLOCKING) {
    use(gpu);
    CUstream stream = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamCreate(&stream, flags));
    use(0);
    return stream;
  }

  CUevent create_event(int gpu, unsigned flags = CU_EVENT_DEFAULT) {
    use(gpu);
    CUevent event = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, cuEventCreate(&event, flags));
    use(0);
    return event;
  }

  /// An event of GPU 0 recorded now on its stream.
  CUevent record(CUstream stream) {
    const CUevent event = create_event(0);
    EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(event, stream));
    return event;
  }

  /// Virtual time between two records, once the second is complete.
  static double elapsed_us(CUevent begin, CUevent end) {
    EXPECT_CUDA(CUDA_SUCCESS, cuEventSynchronize(end));
    float milliseconds = 0;
    EXPECT_CUDA(CUDA_SUCCESS, cuEventElapsedTime(&milliseconds, begin, end));
    return static_cast<double>(milliseconds) * 1e3;
  }

  static CUdeviceptr device(const void* address) { return std::bit_cast<CUdeviceptr>(address); }

  /// The values are there when it returns: a copy from pageable memory does not wait for that.
  static void write(CUdeviceptr address, const std::vector<std::uint8_t>& values) {
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpy(address, device(values.data()), values.size()));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
  }

  /// What the memory holds at this moment, also with work under way.
  static std::vector<std::uint8_t> peek(CUdeviceptr address, std::size_t bytes) {
    std::vector<std::uint8_t> values(bytes);
    EXPECT_EQ(0, polypath_sim_peek(address, values.data(), bytes));
    return values;
  }

  std::vector<CUcontext> contexts;
};

}  // namespace polypath::sim::test
