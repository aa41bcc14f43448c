// Memory and streams that are not for splitting: the native copy, counted with its reason, and the
// bytes arrive.
#include <algorithm>

#include "polypath_sim.h"
#include "support/simulated_test.hpp"
#include "tune/pattern.hpp"

namespace polypath::test {
namespace {

class NativeReasonTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    context_ = std::make_unique<Context>(source(), OptionArguments{});
    context_->prepare({{MemoryId::gpu(0), far(), kSplitBytes},
                       {MemoryId::host(0), MemoryId::gpu(0), kSplitBytes}});
    stream_.emplace(stream_on(0));
  }

  std::unique_ptr<Context> context_;
  std::optional<Stream> stream_;
};

TEST_F(NativeReasonTest, PageableMemory) {
  // Without copy threads; with them test_pageable.cpp has it.
  context_ = std::make_unique<Context>(source(), OptionArguments{{"copy_threads", "1"}});
  std::vector<std::byte> pageable(kSplitBytes);
  fill_pattern(pageable, 3);
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kSplitBytes);
  device.poison();
  const auto address = reinterpret_cast<CUdeviceptr>(pageable.data());
  {
    const Traffic traffic(*context_);
    copy(*context_, {device.address(), address, kSplitBytes, stream_->get()});
    synchronize(stream_->get());
    EXPECT_EQ(device.first_difference(3), std::nullopt);
    EXPECT_TRUE(traffic.went_natively(NativeReason::pageable, kSplitBytes));
  }
  std::ranges::fill(pageable, std::byte{0});
  const Traffic traffic(*context_);
  copy(*context_, {address, device.address(), kSplitBytes, stream_->get()});
  synchronize(stream_->get());
  EXPECT_EQ(first_difference(pageable, 3), std::nullopt);
  EXPECT_TRUE(traffic.went_natively(NativeReason::pageable, kSplitBytes));
}

TEST_F(NativeReasonTest, ManagedMemory) {
  CUdeviceptr managed = 0;
  POLYPATH_CHECK(driver(), mem_alloc_managed(&managed, kSplitBytes, CU_MEM_ATTACH_GLOBAL));
  TestBuffer device(driver(), node(), MemoryId::gpu(0), kSplitBytes);
  TestBuffer back(driver(), node(), MemoryId::gpu(0), kSplitBytes);
  device.fill(4);
  back.poison();
  const Traffic traffic(*context_);
  copy(*context_, {managed, device.address(), kSplitBytes, stream_->get()});
  copy(*context_, {back.address(), managed, kSplitBytes, stream_->get()});
  synchronize(stream_->get());
  EXPECT_EQ(back.first_difference(4), std::nullopt);
  EXPECT_EQ(traffic.native(NativeReason::managed), 2u);
  EXPECT_EQ(traffic.split(), 0u);
  POLYPATH_CHECK(driver(), mem_free(managed));
}

TEST_F(NativeReasonTest, StreamInCapture) {
  if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  const Payload data = payload({MemoryId::gpu(0), far(), kSplitBytes});
  POLYPATH_CHECK(driver(),
                 stream_begin_capture(stream_->get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  const Traffic traffic(*context_);
  copy(*context_, data.transfer(stream_->get()));
  EXPECT_TRUE(traffic.went_natively(NativeReason::capturing, kSplitBytes));
  CUgraph graph = nullptr;
  POLYPATH_CHECK(driver(), stream_end_capture(stream_->get(), &graph));
  const auto nodes =
      driver_function<decltype(polypath_sim_graph_nodes)>(driver(), "polypath_sim_graph_nodes");
  EXPECT_EQ(nodes(graph), 1u) << "a graph of one copy, as natively";
  EXPECT_TRUE(data.untouched());
  POLYPATH_CHECK(driver(), graph_destroy(graph));
}

TEST_F(NativeReasonTest, AnotherStreamsCaptureIsNotDisturbed) {
  // In this mode calls that might disturb a capture are forbidden to all threads, and end it.
  const Payload first = payload({MemoryId::gpu(0), far(), kSplitBytes});
  const Payload second = payload({MemoryId::gpu(0), far(), kSplitBytes});
  const Stream captured = stream_on(0);
  const Stream other = stream_on(0);
  POLYPATH_CHECK(driver(), stream_begin_capture(captured.get(), CU_STREAM_CAPTURE_MODE_GLOBAL));
  const Traffic traffic(*context_);
  copy(*context_, first.transfer(stream_->get()));
  copy(*context_, second.transfer(other.get()));  // asks whether the first has started
  CUgraph graph = nullptr;
  EXPECT_EQ(driver().stream_end_capture(captured.get(), &graph), CUDA_SUCCESS);
  if (graph != nullptr) POLYPATH_CHECK(driver(), graph_destroy(graph));
  synchronize(stream_->get());
  synchronize(other.get());
  EXPECT_TRUE(first.arrived());
  EXPECT_TRUE(second.arrived());
  EXPECT_EQ(traffic.failed(), 0u);
  EXPECT_EQ(traffic.split() + traffic.native(), 2u);
}

TEST_F(NativeReasonTest, ContextsThatAreNotPrimary) {
  if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto create =
      driver_function<CUresult(CUcontext*, unsigned, CUdevice)>(driver(), "cuCtxCreate_v2");
  const auto destroy = driver_function<CUresult(CUcontext)>(driver(), "cuCtxDestroy_v2");
  const Payload data = payload({MemoryId::gpu(0), far(), kSplitBytes});
  CUcontext own = nullptr;
  ASSERT_EQ(create(&own, 0, 0), CUDA_SUCCESS);
  {
    const Stream stream(driver(), own);
    const Traffic traffic(*context_);
    copy(*context_, data.transfer(stream.get()));
    synchronize(stream.get());
    EXPECT_TRUE(data.arrived());
    EXPECT_TRUE(traffic.went_natively(NativeReason::other_context, kSplitBytes));
  }
  ASSERT_EQ(destroy(own), CUDA_SUCCESS);
}

/// Memory of a GPU's default pool.
class PoolMemory {
 public:
  PoolMemory(const CudaDriver& driver, CUcontext context, std::uint64_t bytes)
      : driver_(driver), context_(context), stream_(driver, context) {
    const CurrentContext current(driver, context);
    POLYPATH_CHECK(driver, mem_alloc_async(&address_, bytes, stream_.get()));
    POLYPATH_CHECK(driver, stream_synchronize(stream_.get()));
  }
  ~PoolMemory() {
    const CurrentContext current(driver_, context_, std::nothrow);
    POLYPATH_WARN(driver_, mem_free_async(address_, stream_.get()));
    POLYPATH_WARN(driver_, stream_synchronize(stream_.get()));
  }
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;
  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }

 private:
  const CudaDriver& driver_;
  CUcontext context_;
  Stream stream_;
  CUdeviceptr address_ = 0;
};

TEST_F(NativeReasonTest, PoolMemoryIsWrittenOnlyByGpusThatReachIt) {
  if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  const PoolMemory pool(driver(), context_of(1), kSplitBytes);
  TestBuffer src(driver(), node(), MemoryId::gpu(0), kSplitBytes);
  TestBuffer check(driver(), node(), MemoryId::gpu(1), kSplitBytes);
  src.fill(8);
  const Stream stream = stream_on(1);  // of the only GPU that may copy it
  const Traffic traffic(*context_);
  const auto before = context_->counters().snapshot();
  copy(*context_, {pool.address(), src.address(), kSplitBytes, stream.get()});
  POLYPATH_CHECK(driver(),
                 memcpy_async(check.address(), pool.address(), kSplitBytes, stream.get()));
  synchronize(stream.get());
  EXPECT_EQ(check.first_difference(8), std::nullopt);
  const Plan plan = context_->plan({{MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes}});
  const auto staged = std::ranges::count_if(
      plan.transfers.front().routes,
      [](const RouteShare& share) { return share.route.staged() && share.route.via.is_gpu(); });
  EXPECT_EQ(traffic.excluded(ExclusionReason::unreachable), static_cast<unsigned>(staged));
  EXPECT_EQ(traffic.split() + traffic.native(), 1u);
  const auto after = context_->counters().snapshot();
  for (const auto& [key, count] : after.routes) {
    if (!before.routes.contains(key) || before.routes.at(key).transfers != count.transfers) {
      EXPECT_EQ(key.route.find("gpu"), std::string::npos) << key.route << " was used";
    }
  }
}

TEST_F(NativeReasonTest, PoolMemoryThatAllGpusReachIsSplitAsAny) {
  if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto set_access =
      driver_function<CUresult(CUmemoryPool, const CUmemAccessDesc*, std::size_t)>(
          driver(), "cuMemPoolSetAccess");
  CUmemoryPool pool_of_gpu = nullptr;
  POLYPATH_CHECK(driver(), device_get_default_mem_pool(&pool_of_gpu, 1));
  std::vector<CUmemAccessDesc> all;
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    if (gpu == 1) continue;
    int reaches = 0;
    POLYPATH_CHECK(driver(), device_can_access_peer(&reaches, gpu, 1));
    if (reaches == 0) GTEST_SKIP() << "no peer access on this node";
    all.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, {gpu}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  ASSERT_EQ(set_access(pool_of_gpu, all.data(), all.size()), CUDA_SUCCESS);
  {
    const PoolMemory pool(driver(), context_of(1), kSplitBytes);
    TestBuffer src(driver(), node(), MemoryId::gpu(0), kSplitBytes);
    TestBuffer check(driver(), node(), MemoryId::gpu(1), kSplitBytes);
    src.fill(9);
    const Traffic traffic(*context_);
    copy(*context_, {pool.address(), src.address(), kSplitBytes, stream_->get()});
    POLYPATH_CHECK(driver(),
                   memcpy_async(check.address(), pool.address(), kSplitBytes, stream_->get()));
    synchronize(stream_->get());
    EXPECT_EQ(check.first_difference(9), std::nullopt);
    EXPECT_TRUE(
        traffic.went_as(context_->plan({{MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes}})));

    // It may have another address, which would tell nothing of what was just written.
    Transfer again{pool.address(), src.address(), kSplitBytes, stream_->get()};
    copy(*context_, again);
    again.follows = true;
    copy(*context_, again);
    synchronize(stream_->get());
    EXPECT_EQ(traffic.split(), 3u);
    EXPECT_EQ(traffic.followed(), 0u);
  }
  for (CUmemAccessDesc& access : all) access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_EQ(set_access(pool_of_gpu, all.data(), all.size()), CUDA_SUCCESS);
}

}  // namespace
}  // namespace polypath::test
