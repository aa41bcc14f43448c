// Memory of another process: its copies take every route that they would take within one process,
// by an import for each GPU that issues them.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/report.hpp"
#include "driver/fault_injection.hpp"
#include "pattern.hpp"
#include "peer.hpp"
#include "support/background_hold.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

using sim::test::pattern;
using sim::test::Peer;

constexpr std::size_t kBytes = 24 * kMiB + 4096 + 5;

/// Files that this process has open: every import of the simulated driver holds one.
std::ptrdiff_t open_files() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

class ImportedMemoryTest : public SimulatedTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    stream_.emplace(stream_on(kOwn));
  }

  OptionArguments settings() { return {{"prepare", "wait"}, {"executor", GetParam()}}; }

  /// As a program does: in the context of GPU 1.
  CUdeviceptr open(const CUipcMemHandle& handle) {
    const CurrentContext current(driver(), context_of(kOwn));
    CUdeviceptr address = 0;
    POLYPATH_CHECK(driver(), ipc_open_mem_handle(&address, handle, 1));
    return address;
  }
  void close(CUdeviceptr address) {
    const CurrentContext current(driver(), context_of(kOwn));
    POLYPATH_CHECK(driver(), ipc_close_mem_handle(address));
  }
  /// Opens it, and tells the context where it lies.
  CUdeviceptr import(Context& context, const CUipcMemHandle& handle, int holder = kTheirs) {
    const CUdeviceptr address = open(handle);
    tell(context, handle, address, holder);
    return address;
  }
  void tell(Context& context, const CUipcMemHandle& handle, CUdeviceptr address, int holder) {
    const CurrentContext current(driver(), context_of(kOwn));
    context.memory_imported(handle, address, holder);
  }

  std::vector<std::uint8_t> contents(const TestBuffer& buffer) {
    const auto bytes = read_back(driver(), buffer, 0, buffer.size());
    std::vector<std::uint8_t> values(bytes.size());
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  void write(const TestBuffer& buffer, const std::vector<std::uint8_t>& values) {
    const CurrentContext current(driver(), context_of(kOwn));
    POLYPATH_CHECK(
        driver(),
        memcpy_sync(buffer.address(), reinterpret_cast<CUdeviceptr>(values.data()), values.size()));
    POLYPATH_CHECK(driver(), stream_synchronize(nullptr));  // not pinned: it may be on its way
  }
  /// Gets all of what lies at `imported`, and compares.
  testing::AssertionResult gets(Context& context, CUdeviceptr imported, std::uint8_t seed) {
    TestBuffer own(driver(), node(), MemoryId::gpu(kOwn), kBytes);
    own.poison();
    copy_on_own(context, {own.address(), imported, kBytes, stream_->get()});
    synchronize(stream_->get());
    return contents(own) == pattern(kBytes, seed)
               ? testing::AssertionSuccess()
               : testing::AssertionFailure() << "other bytes than the other process wrote";
  }
  void copy_on_own(Context& context, const Transfer& transfer) {
    const CurrentContext current(driver(), context_of(kOwn));
    context.copy_async(transfer);
  }
  std::uint64_t bounced() {
    return driver_function<std::uint64_t()>(driver(), "polypath_sim_bounced_copies")();
  }

  static constexpr int kTheirs = 0;  ///< the other process's GPU
  static constexpr int kOwn = 1;
  std::optional<Stream> stream_;
};

TEST_P(ImportedMemoryTest, GetTakesEveryRoute) {
  Peer peer;
  Context context(source(), settings());
  const CUdeviceptr imported = import(context, peer.allocate(kTheirs, kBytes, 1));
  const Request request{MemoryId::gpu(kTheirs), MemoryId::gpu(kOwn), kBytes};
  ASSERT_GT(context.plan({request}).transfers.front().routes.size(), 2u);
  reset_sim_counters(driver());
  const Traffic traffic(context);
  EXPECT_TRUE(gets(context, imported, 1));
  EXPECT_TRUE(traffic.went_as(context.plan({request})));
  EXPECT_EQ(bounced(), 0u);
  context.memory_closed(imported);
  close(imported);
}

TEST_P(ImportedMemoryTest, BatchGoesByAllGpus) {
  constexpr std::size_t kBlock = 20000;
  constexpr std::size_t kCount = kBytes / kBlock;
  Peer peer;
  Context context(source(), settings());
  const CUdeviceptr imported = import(context, peer.allocate(kTheirs, kBytes, 1));
  TestBuffer host(driver(), node(), MemoryId::host(0), kBytes);
  write(host, pattern(kBytes, 2));
  std::vector<void*> dsts;
  std::vector<const void*> srcs;
  std::vector<std::size_t> sizes(kCount, kBlock);
  sizes.back() += kBytes - kCount * kBlock;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t at = (i * 7 + 3) % kCount * kBlock;
    dsts.push_back(reinterpret_cast<void*>(imported + at));
    srcs.push_back(reinterpret_cast<const void*>(host.address() + at));
  }
  std::swap(sizes.back(),
            sizes[static_cast<std::size_t>(std::ranges::max_element(dsts) - dsts.begin())]);
  reset_sim_counters(driver());
  {
    const CurrentContext current(driver(), context_of(kOwn));
    context.copy_batch_async({kCount, dsts.data(), srcs.data(), sizes.data(), stream_->get()});
  }
  synchronize(stream_->get());
  EXPECT_TRUE(peer.holds(2));
  const auto counted = context.counters().snapshot().batches;
  EXPECT_EQ(static_cast<std::size_t>(gpus()), counted.routes.size());
  EXPECT_EQ(0U, counted.native);
  EXPECT_EQ(bounced(), 0u);
  context.memory_closed(imported);
  close(imported);
}

TEST_P(ImportedMemoryTest, PutTakesEveryRoute) {
  Peer peer;
  Context context(source(), settings());
  const CUdeviceptr imported = import(context, peer.allocate(kTheirs, kBytes, 1));
  TestBuffer own(driver(), node(), MemoryId::gpu(kOwn), kBytes);
  write(own, pattern(kBytes, 2));
  reset_sim_counters(driver());
  const Traffic traffic(context);
  copy_on_own(context, {imported, own.address(), kBytes, stream_->get()});
  synchronize(stream_->get());
  EXPECT_TRUE(peer.holds(2));
  EXPECT_TRUE(
      traffic.went_as(context.plan({{MemoryId::gpu(kOwn), MemoryId::gpu(kTheirs), kBytes}})));
  EXPECT_EQ(bounced(), 0u);
  context.memory_closed(imported);
  close(imported);
}

TEST_P(ImportedMemoryTest, OffsetIntoImport_CopiesFromThere) {
  Peer peer;
  Context context(source(), settings());
  const CUdeviceptr imported = import(context, peer.allocate(kTheirs, kBytes, 3));
  constexpr std::size_t skipped = 3 * kMiB + 1;
  TestBuffer own(driver(), node(), MemoryId::gpu(kOwn), kBytes - skipped);
  own.poison();
  const Traffic traffic(context);
  copy_on_own(context, {own.address(), imported + skipped, kBytes - skipped, stream_->get()});
  synchronize(stream_->get());
  const auto all = pattern(kBytes, 3);
  EXPECT_TRUE(contents(own) == std::vector<std::uint8_t>(all.begin() + skipped, all.end()));
  EXPECT_EQ(traffic.split(), 1u);
  context.memory_closed(imported);
  close(imported);
}

// Programs whose kernels use imported memory and that never copy much of it pay for nothing.
TEST_P(ImportedMemoryTest, SmallCopies_MakeNothing) {
  constexpr std::size_t kSmall = 64 * kKiB;
  constexpr std::size_t kMedium = 320 * kKiB;  // looked into, and not worth a split
  Peer peer;
  Context context(source(), {{"executor", GetParam()}});
  ASSERT_TRUE(context.plan({{MemoryId::gpu(kTheirs), MemoryId::gpu(kOwn), kMedium}}).native());
  TestBuffer own(driver(), node(), MemoryId::gpu(kOwn), kMedium);
  LiveObjects expected = live_objects(driver());
  ++expected.allocations;  // what the program opens
  const CUdeviceptr imported = import(context, peer.allocate(kTheirs, kBytes, 4));
  context.wait_prepared();
  EXPECT_EQ(live_objects(driver()), expected);
  for (const std::size_t bytes : {kSmall, kMedium}) {
    own.poison();
    copy_on_own(context, {own.address(), imported, bytes, stream_->get()});
    synchronize(stream_->get());
    context.wait_prepared();
    const auto read = contents(own);
    const auto all = pattern(kBytes, 4);
    EXPECT_TRUE(std::equal(read.begin(), read.begin() + bytes, all.begin()));
    EXPECT_EQ(live_objects(driver()), expected) << bytes << " bytes";
  }
  context.memory_closed(imported);
  close(imported);
}

TEST_P(ImportedMemoryTest, FirstLargeCopy_PreparesItsRoutes) {
  Peer peer;
  BackgroundHold hold(driver());
  NodeSource held = source();
  held.driver = hold.driver();
  Context context(held, {{"executor", GetParam()}});
  const CUdeviceptr imported = import(context, peer.allocate(kTheirs, kBytes, 4));
  context.wait_prepared();
  {
    const Traffic traffic(context);
    EXPECT_TRUE(gets(context, imported, 4));
    EXPECT_TRUE(traffic.went_natively(NativeReason::not_ready, kBytes));
  }
  hold.end();
  context.wait_prepared();
  const Traffic traffic(context);
  EXPECT_TRUE(gets(context, imported, 4));
  EXPECT_TRUE(
      traffic.went_as(context.plan({{MemoryId::gpu(kTheirs), MemoryId::gpu(kOwn), kBytes}})));
  context.memory_closed(imported);
  close(imported);
}

TEST_P(ImportedMemoryTest, OpenedAfterALargeCopy_IsPrepared) {
  Peer before;
  Peer after;
  Context context(source(), {{"executor", GetParam()}});
  const CUdeviceptr first = import(context, before.allocate(kTheirs, kBytes, 4));
  EXPECT_TRUE(gets(context, first, 4));
  context.wait_prepared();
  const CUdeviceptr second = import(context, after.allocate(kTheirs, kBytes, 5));
  context.wait_prepared();
  const Traffic traffic(context);
  EXPECT_TRUE(gets(context, second, 5));
  EXPECT_TRUE(
      traffic.went_as(context.plan({{MemoryId::gpu(kTheirs), MemoryId::gpu(kOwn), kBytes}})));
  for (const CUdeviceptr imported : {first, second}) {
    context.memory_closed(imported);
    close(imported);
  }
}

TEST_P(ImportedMemoryTest, UnpublishedMemory_GoesNatively) {
  Peer peer;
  Context context(source(), settings());
  const CUdeviceptr imported = import(context, peer.allocate(kTheirs, kBytes, 5), -1);
  const Traffic traffic(context);
  EXPECT_TRUE(gets(context, imported, 5));
  EXPECT_TRUE(traffic.went_natively(NativeReason::other_process, kBytes));
  EXPECT_NE(report(context).find("memory of a process without polypath (1)"), std::string::npos);
  context.memory_closed(imported);
  close(imported);
}

TEST_P(ImportedMemoryTest, ImportsEndWithTheProgramsOwn) {
  Peer peer;
  Context context(source(), settings());
  context.prepare({{MemoryId::gpu(kTheirs), MemoryId::gpu(kOwn), kBytes}});  // staging memory
  const auto before = open_files();
  const CUipcMemHandle handle = peer.allocate(kTheirs, kBytes, 6);
  const CUdeviceptr imported = import(context, handle);
  EXPECT_EQ(import(context, handle), imported) << "opened twice";
  EXPECT_TRUE(gets(context, imported, 6));
  EXPECT_GE(open_files(), before + 2) << "an import of our own";
  context.memory_closed(imported);
  close(imported);
  EXPECT_GE(open_files(), before + 2) << "still open once";
  EXPECT_TRUE(gets(context, imported, 6));
  context.memory_closed(imported);
  close(imported);
  EXPECT_EQ(open_files(), before);
}

TEST_P(ImportedMemoryTest, NothingOfClosedMemoryIsLeft) {
  Context context(source(), settings());
  for (std::uint8_t round = 0; round < 4; ++round) {
    Peer peer;
    const CUdeviceptr imported = import(context, peer.allocate(kTheirs, kBytes, round));
    const Traffic traffic(context);
    EXPECT_TRUE(gets(context, imported, round)) << "round " << int{round};
    EXPECT_EQ(traffic.split(), 1u);
    context.memory_closed(imported);
    close(imported);
  }
  EXPECT_EQ(graph_misuse(driver()), GraphMisuse{});
}

// As when the program destroys the CUDA context that it was opened in.
TEST_P(ImportedMemoryTest, ReusedAddress_IsNotStaleImport) {
  Peer peer;
  Context context(source(), settings());
  const CUdeviceptr imported = import(context, peer.allocate(kTheirs, kBytes, 8));
  EXPECT_TRUE(gets(context, imported, 8));
  close(imported);
  TestBuffer own(driver(), node(), MemoryId::gpu(kOwn), kBytes);
  if (own.address() != imported) GTEST_SKIP() << "needs a driver that gives out addresses again";
  write(own, pattern(kBytes, 9));
  TestBuffer far(driver(), node(), MemoryId::gpu(2), kBytes);
  far.poison();
  const Traffic traffic(context);
  copy_on_own(context, {far.address(), own.address(), kBytes, stream_->get()});
  synchronize(stream_->get());
  EXPECT_TRUE(contents(far) == pattern(kBytes, 9));
  EXPECT_TRUE(traffic.went_as(context.plan({{MemoryId::gpu(kOwn), MemoryId::gpu(2), kBytes}})));
}

TEST_P(ImportedMemoryTest, ReopenedImport_IsSplit) {
  Context context(source(), settings());
  Peer peer;
  const CUipcMemHandle handle = peer.allocate(kTheirs, kBytes, 10);
  const CUdeviceptr first = import(context, handle);
  close(first);
  const CUdeviceptr second = import(context, handle);
  const Traffic traffic(context);
  EXPECT_TRUE(gets(context, second, 10));
  EXPECT_EQ(traffic.split(), 1u);
  context.memory_closed(second);
  close(second);
}

TEST_P(ImportedMemoryTest, FailedImport_ExcludesItsRoutesForAWhile) {
  Peer peer;
  NodeSource failing = source();
  FaultInjector injector(failing.driver);
  failing.driver = injector.driver();
  Context context(failing, settings());
  injector.fail("cuIpcOpenMemHandle_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
  const CUdeviceptr imported = import(context, peer.allocate(kTheirs, kBytes, 7));
  const Traffic traffic(context);
  EXPECT_TRUE(gets(context, imported, 7));
  EXPECT_TRUE(gets(context, imported, 7));
  EXPECT_EQ(traffic.failed(), 0u);
  EXPECT_GE(traffic.excluded(ExclusionReason::failed), 1u);
  // After a pause the context tries the route again.
  const Plan plan = context.plan({{MemoryId::gpu(kTheirs), MemoryId::gpu(kOwn), kBytes}});
  bool as_planned = false;
  for (int copies = 0; !as_planned && copies < 4 * Retry::kFirstPause; ++copies) {
    const Traffic next_traffic(context);
    ASSERT_TRUE(gets(context, imported, 7));
    as_planned = static_cast<bool>(next_traffic.went_as(plan));
  }
  EXPECT_TRUE(as_planned);
  context.memory_closed(imported);
  close(imported);
}

INSTANTIATE_TEST_SUITE_P(Executors, ImportedMemoryTest, testing::Values("stream", "graph"),
                         [](const auto& suite) { return std::string(suite.param); });

}  // namespace
}  // namespace polypath::test
