// When the engine is made, and what happens while and when it cannot be. Each test needs a process
// of its own (CMakeLists.txt): there is one engine a process.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <thread>

#include "shim_test.hpp"
#include "support/in_child.hpp"

namespace polypath::preload::test {
namespace {

using polypath::test::in_child;

class EngineStart : public sim::test::SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    near = allocate(0, kLarge);
    host = allocate_host(kLarge);
  }

  CUresult copy(std::size_t bytes) {
    return cuMemcpyHtoDAsync(near, host, bytes, CU_STREAM_PER_THREAD);
  }
  void expect_native() {
    polypath_sim_reset_counters();
    for (int i = 0; i < 3; ++i) EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
    EXPECT_EQ(3U, polypath_sim_copies());
    EXPECT_TRUE(engine.copies.empty());
    EXPECT_LE(engine.created, 1) << "it is tried once";
  }

  FakeEngine& engine = fake_engine();
  CUdeviceptr near = 0;
  std::uint8_t* host = nullptr;
};

TEST_F(EngineStart, WaitsForTheFirstLargeCopy) {
  for (int i = 0; i < 3; ++i) EXPECT_CUDA(CUDA_SUCCESS, copy(256 * kKiB - 1));
  EXPECT_EQ(0, engine.created);
  EXPECT_CUDA(CUDA_SUCCESS, copy(256 * kKiB));
  EXPECT_EQ(1, engine.created);
  EXPECT_TRUE(engine.copies.empty()) << "below what it splits";
  for (int i = 0; i < 3; ++i) EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
  EXPECT_EQ(1, engine.created);
  EXPECT_EQ(3U, engine.copies.size());
}

// The first caller is held in the making until all others are done: they do not wait.
TEST_F(EngineStart, StartBlocksNoOtherThread) {
  constexpr int kThreads = 16;
  std::mutex mutex;
  std::condition_variable done;
  int ended = 0;
  engine.answer = FakeEngine::Answer::take;
  engine.during_create = [&] {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(
        done.wait_for(lock, std::chrono::seconds(60), [&] { return ended == kThreads - 1; }));
  };
  std::vector<CUdeviceptr> memories;
  for (int i = 0; i < kThreads; ++i) memories.push_back(allocate(0, kLarge));
  const auto expected = sim::test::pattern(kLarge, 3);
  std::ranges::copy(expected, host);
  polypath_sim_reset_counters();
  {
    std::vector<std::jthread> threads;
    for (const CUdeviceptr memory : memories)
      threads.emplace_back([&, memory] {
        EXPECT_CUDA(CUDA_SUCCESS, cuCtxSetCurrent(context(0)));
        EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyHtoDAsync(memory, host, kLarge, CU_STREAM_PER_THREAD));
        EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(CU_STREAM_PER_THREAD));
        const std::lock_guard lock(mutex);
        ++ended;
        done.notify_all();
      });
  }
  EXPECT_EQ(1, engine.created);
  EXPECT_EQ(1U, engine.copies.size());
  EXPECT_EQ(unsigned{kThreads}, polypath_sim_copies());
  for (const CUdeviceptr memory : memories) EXPECT_EQ(expected, peek(memory, kLarge));
}

TEST_F(EngineStart, WithoutAGpuSaysNothing) {
  engine.create_status = POLYPATH_NO_DEVICE;
  testing::internal::CaptureStderr();
  expect_native();
  EXPECT_EQ("", testing::internal::GetCapturedStderr());
}

TEST_F(EngineStart, WithAWrongSettingSaysSoOnce) {
  engine.create_status = POLYPATH_INVALID_ARGUMENT;
  testing::internal::CaptureStderr();
  expect_native();
  EXPECT_EQ("polypath: warn: copies stay the driver's: a fake reason\n",
            testing::internal::GetCapturedStderr());
}

// The engine may allocate and so on in the middle of a program's capture.
TEST_F(EngineStart, DoesNotDisturbACapture) {
  engine.during_create = [&] { allocate(0, kMiB); };
  const CUstream capturing = create_stream(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
  EXPECT_EQ(1, engine.created);
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamEndCapture(capturing, &graph));
  EXPECT_CUDA(CUDA_SUCCESS, cuGraphDestroy(graph));
}

// A reset ends what the engine has on the GPU. The engine has released that by then.
TEST_F(EngineStart, ResetDestroysAndCopyRecreatesEngine) {
  EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
  EXPECT_TRUE(engine.is_alive);
  std::uint64_t at_destroy = 0;
  engine.during_destroy = [&] { at_destroy = polypath_sim_live_contexts(); };
  const auto before = polypath_sim_live_contexts();
  for (const CUdevice gpu : {1, 2}) {
    EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxReset(gpu));
    EXPECT_FALSE(engine.is_alive);
  }
  EXPECT_EQ(before, at_destroy) << "before the driver's reset";
  EXPECT_EQ(before - 2, polypath_sim_live_contexts());
  EXPECT_EQ(1, engine.created);
  EXPECT_CUDA(CUDA_SUCCESS, copy(256 * kKiB - 1));
  EXPECT_EQ(1, engine.created);
  EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
  EXPECT_EQ(2, engine.created);
  EXPECT_TRUE(engine.is_alive);
  EXPECT_EQ(2U, engine.copies.size());
}

TEST_F(EngineStart, ResetWaitsForCallsInTheEngine) {
  std::jthread resetting;
  bool was_alive = false;
  std::atomic_flag is_held = ATOMIC_FLAG_INIT;
  engine.during_copy = [&] {
    if (is_held.test_and_set()) return;
    resetting = std::jthread([] { EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxReset(2)); });
    // No other thread gets in once it waits: that is what shows it.
    std::jthread([&] {
      EXPECT_CUDA(CUDA_SUCCESS, cuCtxSetCurrent(context(0)));
      for (std::size_t seen = 0; seen != engine.copies.size();) {
        seen = engine.copies.size();
        EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
      }
    }).join();
    was_alive = engine.is_alive;
  };
  EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
  resetting.join();
  EXPECT_TRUE(was_alive);
  EXPECT_FALSE(engine.is_alive);
  EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
  EXPECT_TRUE(engine.is_alive);
}

// What the engine does itself is the driver's alone.
TEST_F(EngineStart, EnginesOwnReset_KeepsTheEngine) {
  engine.during_copy = [] { EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxReset(2)); };
  EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
  EXPECT_TRUE(engine.is_alive);
  engine.during_copy = [] {};
  EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
  EXPECT_EQ(1, engine.created);
}

// The driver does not work in such a child; it says so, and the engine is not asked.
TEST_F(EngineStart, ForkedChild_DoesNotUseTheEngine) {
  EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
  EXPECT_EQ(1U, engine.copies.size());
  EXPECT_EQ(0, in_child([&] {
              if (copy(kLarge) != CUDA_ERROR_NOT_INITIALIZED) return 1;
              return engine.copies.size() == 1 && engine.created == 1 ? 0 : 2;
            }));
  EXPECT_CUDA(CUDA_SUCCESS, copy(kLarge));
  EXPECT_EQ(2U, engine.copies.size()) << "the parent keeps it";
}

// Here no CUDA was used before the fork.
TEST(EngineStartInChildren, ChildrenBeforeCuda_CreateTheirOwn) {
  const auto use_cuda = [] {
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    void* host = nullptr;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&memory, kLarge) != CUDA_SUCCESS ||
        cuMemHostAlloc(&host, kLarge, 0) != CUDA_SUCCESS ||
        cuMemcpyHtoD(memory, host, kLarge) != CUDA_SUCCESS)
      return 1;
    return fake_engine().created == 1 && fake_engine().copies.size() == 1 ? 0 : 2;
  };
  EXPECT_EQ(0, in_child(use_cuda));
  EXPECT_EQ(0, in_child(use_cuda));
  EXPECT_EQ(0, use_cuda());
}

}  // namespace
}  // namespace polypath::preload::test
