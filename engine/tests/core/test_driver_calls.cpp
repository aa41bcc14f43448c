// How many calls to the driver one transfer costs the caller's thread before its first copy.
#include "driver/fault_injection.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

class DriverCallsTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    faults_.emplace(source().driver);
    NodeSource source = this->source();
    source.driver = faults_->driver();
    context_ = std::make_unique<Context>(source, OptionArguments{});
    context_->prepare({wide()});
    stream_.emplace(stream_on(0));
  }
  [[nodiscard]] Request wide() const { return {MemoryId::gpu(0), far(), kSplitBytes}; }

  /// Calls of one transfer that follows another of the same kind.
  std::map<std::string, std::uint64_t> calls_of(const Transfer& transfer) {
    for (int i = 0; i < 2; ++i) {
      if (i == 1) faults_->clear();
      context_->copy_async(transfer);
    }
    const auto calls = faults_->calls_by_symbol();
    synchronize(stream_->get());
    return calls;
  }
  static std::uint64_t count_of(const std::map<std::string, std::uint64_t>& calls,
                                const char* symbol) {
    const auto entry = calls.find(symbol);
    return entry == calls.end() ? 0 : entry->second;
  }
  [[nodiscard]] int gpus_staged_on() {
    int staged = 0;
    const Plan plan = context_->plan({wide()});
    for (const RouteShare& share : plan.transfers.front().routes)
      staged += share.route.staged() && share.route.via.is_gpu() ? 1 : 0;
    return staged;
  }

  std::optional<FaultInjector> faults_;
  std::unique_ptr<Context> context_;
  std::optional<Stream> stream_;
};

TEST_F(DriverCallsTest, PlainMemoryIsAskedForOnce) {
  const Payload data = payload({MemoryId::gpu(0), far(), kSplitBytes});
  const auto calls = calls_of(data.transfer(stream_->get()));
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(count_of(calls, "cuPointerGetAttributes"), 2u);
  EXPECT_EQ(count_of(calls, "cuMemGetAccess"), 0u);
  EXPECT_EQ(count_of(calls, "cuMemPoolGetAccess"), 0u);
  EXPECT_EQ(count_of(calls, "cuDevicePrimaryCtxGetState"), 0u);
  EXPECT_LE(count_of(calls, "cuStreamGetCtx"), 1u);
  EXPECT_LE(count_of(calls, "cuStreamGetId"), 1u);
  // That of the stream, then each GPU of the plan.
  EXPECT_LE(count_of(calls, "cuCtxGetId"), 3u + static_cast<unsigned>(gpus_staged_on()));
}

TEST_F(DriverCallsTest, SmallTransfersAskForTheirAddressesOnly) {
  const Payload data = payload({MemoryId::gpu(0), far(), 4 * kKiB});
  const auto calls = calls_of(data.transfer(stream_->get()));
  EXPECT_TRUE(data.arrived());
  const std::map<std::string, std::uint64_t> expected{{"cuPointerGetAttributes", 2},
                                                      {"cuMemcpyAsync", 1}};
  EXPECT_EQ(calls, expected);
}

TEST_F(DriverCallsTest, PoolsAreAskedForGpusThatCopyOnly) {
  int reaches = 0;
  if (gpus() > 1) POLYPATH_CHECK(driver(), device_can_access_peer(&reaches, 0, 1));
  if (reaches == 0) GTEST_SKIP() << "no peer access on this node";
  // The driver's own copy needs the source's GPU to reach the pool.
  const auto set_access =
      driver_function<CUresult(CUmemoryPool, const CUmemAccessDesc*, std::size_t)>(
          driver(), "cuMemPoolSetAccess");
  CUmemoryPool pool_of_gpu = nullptr;
  POLYPATH_CHECK(driver(), device_get_default_mem_pool(&pool_of_gpu, 1));
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(set_access(pool_of_gpu, &access, 1), CUDA_SUCCESS);
  CUdeviceptr pool = 0;
  {
    const CurrentContext current(driver(), context_of(1));
    POLYPATH_CHECK(driver(), mem_alloc_async(&pool, kSplitBytes, nullptr));
    POLYPATH_CHECK(driver(), stream_synchronize(nullptr));
  }
  const Payload data = payload({MemoryId::gpu(0), far(), kSplitBytes});
  Transfer transfer = data.transfer(stream_->get());
  transfer.dst = pool;
  const auto calls = calls_of(transfer);
  // The stream's, and the one that the pool is on, when it takes a leg from host memory.
  EXPECT_LE(count_of(calls, "cuMemPoolGetAccess"), 2u + static_cast<unsigned>(gpus_staged_on()));
  EXPECT_EQ(count_of(calls, "cuMemGetAccess"), 0u);
  EXPECT_EQ(count_of(calls, "cuPointerGetAttributes"), 2u);
  const CurrentContext current(driver(), context_of(1));
  POLYPATH_CHECK(driver(), mem_free_async(pool, nullptr));
  POLYPATH_CHECK(driver(), stream_synchronize(nullptr));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  EXPECT_EQ(set_access(pool_of_gpu, &access, 1), CUDA_SUCCESS);
}

}  // namespace
}  // namespace polypath::test
