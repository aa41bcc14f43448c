// Children of a process: before cuInit they may use the driver, afterwards not. One process, so one
// test.
#include "fixture.hpp"
#include "support/in_child.hpp"

namespace polypath::sim::test {
namespace {

using polypath::test::in_child;

/// 0 when a copy through device memory works; otherwise the number of the step that does not.
int use_driver() {
  if (cuInit(0) != CUDA_SUCCESS) return 1;
  CUcontext context = nullptr;
  if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) return 2;
  if (cuCtxSetCurrent(context) != CUDA_SUCCESS) return 3;
  const auto values = pattern(100'000, 7);
  std::vector<std::uint8_t> back(values.size(), 0xEE);
  CUdeviceptr memory = 0;
  const auto address = [](const void* at) { return std::bit_cast<CUdeviceptr>(at); };
  if (cuMemAlloc(&memory, values.size()) != CUDA_SUCCESS) return 4;
  if (cuMemcpy(memory, address(values.data()), values.size()) != CUDA_SUCCESS) return 5;
  if (cuMemcpy(address(back.data()), memory, values.size()) != CUDA_SUCCESS) return 6;
  return back == values ? 0 : 7;
}

TEST(Fork, OnlyChildrenFromBeforeCuInitWork) {
  EXPECT_EQ(0, in_child(use_driver));
  EXPECT_EQ(0, use_driver());
  CUevent event = nullptr;
  ASSERT_CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(CUDA_ERROR_NOT_INITIALIZED, in_child([] { return static_cast<int>(cuInit(0)); }));
  EXPECT_EQ(CUDA_ERROR_NOT_INITIALIZED,
            in_child([event] { return static_cast<int>(cuEventQuery(event)); }));
  EXPECT_EQ(CUDA_ERROR_NOT_INITIALIZED, in_child([] {
              CUcontext current = nullptr;
              return static_cast<int>(cuCtxGetCurrent(&current));
            }));
  EXPECT_EQ(0, use_driver());
}

}  // namespace
}  // namespace polypath::sim::test
