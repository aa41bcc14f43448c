// Contexts: the stack of a thread, primary contexts, what needs a current one, peer access.
#include <array>
#include <atomic>
#include <thread>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

class Contexts : public SimTest {};

TEST_F(Contexts, StackBelongsToTheThread) {
  ASSERT_CUDA(cuCtxPushCurrent(context(1)));
  CUdevice device = -1;
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxGetDevice(&device));
  EXPECT_EQ(1, device);
  std::thread([] {
    CUcontext current = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxGetCurrent(&current));
    EXPECT_EQ(nullptr, current);
    CUdevice none = -1;
    EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&none));
    EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent(nullptr));
  }).join();
  CUcontext popped = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxPopCurrent(&popped));
  EXPECT_EQ(context(1), popped);
  CUcontext current = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxGetCurrent(&current));
  EXPECT_EQ(context(0), current);
}

TEST_F(Contexts, NoCurrentContext_FailsMostCalls) {
  const CUdeviceptr src = allocate(0, kMiB);
  const CUstream stream = create_stream(0);
  const CUevent event = create_event(0);
  ASSERT_CUDA(cuCtxSetCurrent(nullptr));
  CUdeviceptr address = 0;
  void* host = nullptr;
  CUstream new_stream = nullptr;
  CUevent made_event = nullptr;
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&address, kMiB));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuMemFree(src));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuMemHostAlloc(&host, kMiB, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&new_stream, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuEventCreate(&made_event, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyAsync(src, src, 1, stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuEventRecord(event, stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
  EXPECT_CUDA(CUDA_SUCCESS, cuEventQuery(event));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
}

TEST_F(Contexts, NamedContext_IsUsedNotCurrent) {
  CUdevice ordinal = -1;
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxGetDevice_v2(&ordinal, context(2)));
  EXPECT_EQ(2, ordinal);
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxGetDevice_v2(&ordinal, nullptr));
  EXPECT_EQ(0, ordinal);

  auto* const word = reinterpret_cast<std::atomic<std::uint32_t>*>(allocate_host(4096));
  word->store(0);
  const CUdeviceptr src = allocate(2, kMiB);
  const CUdeviceptr dst = allocate(2, kMiB);
  const CUstream stream = create_stream(2);
  ASSERT_CUDA(cuStreamWaitValue32(stream, device(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CUDA(cuMemcpyAsync(dst, src, kMiB, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize_v2(context(1)));
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize_v2(nullptr));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  word->store(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize_v2(context(2)));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
}

TEST_F(Contexts, StreamOfOtherContext_CanBeUsed) {
  enable_peer(1, 0);
  const CUdeviceptr src = allocate(0, kMiB);
  const CUdeviceptr dst = allocate(1, kMiB);
  const CUstream stream = create_stream(1);
  use(2);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(dst, src, kMiB, stream));
  EXPECT_EQ(0U, polypath_sim_bounced_copies());
  CUcontext owner = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamGetCtx(stream, &owner));
  EXPECT_EQ(context(1), owner);
}

TEST_F(Contexts, CreationTakesTime) {
  const double begin = polypath_sim_clock_us();
  CUcontext own = nullptr;
  ASSERT_CUDA(cuCtxCreate_v4(&own, nullptr, 0, 1));
  EXPECT_DOUBLE_EQ(begin + 1000, polypath_sim_clock_us());
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxDestroy(own));
}

TEST_F(Contexts, RecreatedPrimary_HasNewId) {
  unsigned long long id = 0;
  ASSERT_CUDA(cuCtxGetId(context(1), &id));
  unsigned long long current = 0;
  ASSERT_CUDA(cuCtxGetId(nullptr, &current));
  EXPECT_NE(id, current);
  use(1);
  ASSERT_CUDA(cuCtxGetId(nullptr, &current));
  EXPECT_EQ(id, current);
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(1));
  EXPECT_CUDA(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxGetId(context(1), &id));
  CUcontext again = nullptr;
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&again, 1));
  ASSERT_CUDA(cuCtxGetId(again, &id));
  EXPECT_NE(current, id);
}

TEST_F(Contexts, PrimaryLivesUntilItsLastRelease) {
  CUcontext again = nullptr;
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&again, 1));
  EXPECT_EQ(context(1), again);
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(again));
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(1));
  unsigned flags = 1;
  int active = 0;
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(1, active);
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(1));
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxGetState(1, &flags, &active));
  EXPECT_EQ(0, active);
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(1));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(again));
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&again, 1));
  EXPECT_NE(context(1), again);
}

TEST_F(Contexts, DestroyEndsMemoryStreamsAndEvents) {
  CUcontext own = nullptr;
  const auto allocations = polypath_sim_live_allocations();
  ASSERT_CUDA(cuCtxCreate_v4(&own, nullptr, 0, 0));  // is current now
  CUdeviceptr address = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  ASSERT_CUDA(cuMemAlloc(&address, kMiB));
  ASSERT_CUDA(cuStreamCreate(&stream, 0));
  ASSERT_CUDA(cuEventCreate(&event, 0));
  ASSERT_CUDA(cuCtxPushCurrent(context(0)));
  ASSERT_CUDA(cuCtxDestroy(own));
  EXPECT_EQ(allocations, polypath_sim_live_allocations());
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(address));
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxPopCurrent(nullptr));
  EXPECT_CUDA(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&address, kMiB));
}

TEST_F(Contexts, DestroyWaitsForUsersOfItsMemory) {
  CUcontext own = nullptr;
  ASSERT_CUDA(cuCtxCreate_v4(&own, nullptr, 0, 0));
  std::uint8_t* const host = allocate_host(kMiB);
  std::fill_n(host, kMiB, std::uint8_t{0x42});
  const CUdeviceptr memory = allocate(1, kMiB);
  const CUstream stream = create_stream(1);
  ASSERT_CUDA(cuMemcpyAsync(memory, device(host), kMiB, stream));
  ASSERT_CUDA(cuCtxDestroy(own));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
  EXPECT_EQ(std::vector<std::uint8_t>(kMiB, 0x42), peek(memory, kMiB));
}

TEST_F(Contexts, PeerAccessNeedsALinkAndIsGivenOnce) {
  int can = 0;
  EXPECT_CUDA(CUDA_SUCCESS, cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(1, can);
  EXPECT_CUDA(CUDA_SUCCESS, cuDeviceCanAccessPeer(&can, 1, 2));
  EXPECT_EQ(0, can);
  EXPECT_CUDA(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(context(0), 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuCtxEnablePeerAccess(context(1), 1));
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxEnablePeerAccess(context(1), 0));
  EXPECT_CUDA(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(context(1), 0));
  use(1);
  EXPECT_CUDA(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(context(2), 0));
}

TEST_F(Contexts, DevicesAnswerForTheNode) {
  char text[64];
  EXPECT_CUDA(CUDA_SUCCESS, cuDeviceGetName(text, sizeof text, 2));
  EXPECT_STREQ("NVIDIA A100-SXM4-40GB", text);
  std::size_t bytes = 0;
  EXPECT_CUDA(CUDA_SUCCESS, cuDeviceTotalMem(&bytes, 2));
  EXPECT_EQ(4 * kGiB, bytes);
  int value = -1;
  EXPECT_CUDA(CUDA_SUCCESS,
              cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 2));
  EXPECT_EQ(8, value);
  EXPECT_CUDA(CUDA_SUCCESS, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 2));
  EXPECT_EQ(1, value);
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED,
              cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 2));
  EXPECT_CUDA(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName(text, sizeof text, 3));
}

TEST_F(Contexts, ResetEndsAllOfThePrimaryContext) {
  unsigned long long first = 0;
  ASSERT_CUDA(cuCtxGetId(context(0), &first));
  const CUdeviceptr memory = allocate(0, kMiB);
  std::uint8_t* const host = allocate_host(kMiB);
  const CUstream stream = create_stream(0);
  const CUevent event = create_event(0);
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.dstDevice = memory + 512;
  copy.WidthInBytes = 512;
  copy.Height = copy.Depth = 1;
  ASSERT_CUDA(cuGraphCreate(&graph, 0));
  ASSERT_CUDA(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context(0)));
  ASSERT_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  const CUstream elsewhere = create_stream(1);
  ASSERT_CUDA(cuMemcpyAsync(memory, device(host), kMiB, stream));

  ASSERT_CUDA(cuDevicePrimaryCtxReset(0));
  unsigned flags = 0;
  int active = 1;
  ASSERT_CUDA(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(0, active);
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(exec));
  CUdeviceptr unused = 0;
  EXPECT_CUDA(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&unused, 64));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(elsewhere));

  CUcontext next = nullptr;
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&next, 0));
  unsigned long long second = 0;
  ASSERT_CUDA(cuCtxGetId(next, &second));
  EXPECT_NE(first, second);
  ASSERT_CUDA(cuCtxSetCurrent(next));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
  EXPECT_CUDA(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_CUDA(CUDA_SUCCESS, cuGraphDestroy(graph));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemAlloc(&unused, 64));
  // Releases of contexts that were retained before it still count.
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(0));
  ASSERT_CUDA(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(1, active);
}

TEST_F(Contexts, ResetWithoutContext_DoesNothing) {
  ASSERT_CUDA(cuDevicePrimaryCtxReset(0));
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxReset(0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxReset(99));
}

TEST_F(Contexts, HeldCreations_RunConcurrently) {
  polypath_sim_reset_counters();
  EXPECT_EQ(0U, polypath_sim_contexts_at_once());
  polypath_sim_hold_contexts(2);
  std::vector<std::thread> threads;
  for (const CUdevice device : {0, 1}) {
    threads.emplace_back([device] {
      CUcontext context = nullptr;
      EXPECT_CUDA(CUDA_SUCCESS, cuCtxCreate_v4(&context, nullptr, 0, device));
      EXPECT_CUDA(CUDA_SUCCESS, cuCtxDestroy(context));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(2U, polypath_sim_contexts_at_once());
}

TEST_F(Contexts, ConcurrentRetains_CreateOnePrimary) {
  ASSERT_CUDA(cuDevicePrimaryCtxReset(1));
  const auto before = polypath_sim_live_contexts();
  polypath_sim_hold_contexts(2);
  std::array<CUcontext, 2> retained{};
  std::vector<std::thread> threads;
  for (CUcontext& context : retained)
    threads.emplace_back(
        [&context] { EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&context, 1)); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(retained[0], retained[1]);
  EXPECT_EQ(before + 1, polypath_sim_live_contexts());
  for (int i = 0; i < 2; ++i) EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(1));
}

TEST_F(Contexts, PinnedMemoryAndPeers_TakeTime) {
  const double begin_us = polypath_sim_clock_us();
  void* pinned = nullptr;
  ASSERT_CUDA(cuMemHostAlloc(&pinned, 2 * kMiB, 0));
  const double pinned_us = polypath_sim_clock_us();
  EXPECT_DOUBLE_EQ(begin_us + 500, pinned_us);
  ASSERT_CUDA(cuCtxEnablePeerAccess(context(1), 0));
  EXPECT_DOUBLE_EQ(pinned_us + 200, polypath_sim_clock_us());
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFreeHost(pinned));
}

}  // namespace
}  // namespace polypath::sim::test
