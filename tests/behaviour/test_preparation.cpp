// Contexts and staging memory are made on demand, by another thread; until they are ready,
// transfers go without them (DESIGN: decision 4).
#include <mutex>
#include <set>
#include <thread>

#include "behaviour_test.hpp"
#include "support/background_hold.hpp"
#include "support/hooked_driver.hpp"

namespace polypath::test {
namespace {

/// Notes which GPUs' contexts this thread makes. Entry points are plain functions, so there is one.
struct ContextSpy {
  std::mutex mutex;
  std::thread::id caller;
  std::set<CUdevice> retained;
  CUresult (*original)(CUcontext*, CUdevice) = nullptr;
};
ContextSpy spy;

CUresult spying_retain(CUcontext* context, CUdevice device) {
  {
    const std::lock_guard lock(spy.mutex);
    if (std::this_thread::get_id() == spy.caller) spy.retained.insert(device);
  }
  return spy.original(context, device);
}

NodeSource spied(const NodeSource& source) {
  auto table = std::make_shared<CudaDriver>(*source.driver);
  spy.original = source.driver->primary_ctx_retain;
  spy.caller = std::this_thread::get_id();
  spy.retained.clear();
  table->primary_ctx_retain = spying_retain;
  NodeSource copy = source;
  copy.driver = std::move(table);
  return copy;
}

/// GPUs that some staged route of the plan needs and that are no end point.
std::set<int> staging_gpus(const Node& node, const TransferPlan& transfer) {
  std::set<int> gpus;
  for (const RouteShare& share : transfer.routes) {
    if (!share.route.staged()) continue;
    for (const int leg : share.route.legs) {
      const Link& link = node.links[static_cast<std::size_t>(leg)];
      for (const MemoryId end : {link.from, link.to})
        if (end.is_gpu() && end != transfer.request.src && end != transfer.request.dst)
          gpus.insert(end.index);
    }
  }
  return gpus;
}

TEST_P(PreparationTest, UnreadyRoutes_AreExcludedUntilReady) {
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  BackgroundHold hold(driver());
  NodeSource held = source();
  held.driver = hold.driver();
  const auto context = GetParam().make(spied(held), {});
  const auto bytes = min_split(*context, MemoryId::gpu(0), far);
  if (!bytes) GTEST_SKIP() << "nothing is split on this node";
  const Payload first = payload({MemoryId::gpu(0), far, *bytes});
  const Payload second = payload({MemoryId::gpu(0), far, *bytes});
  const Plan plan = context->plan({first.request()});
  const std::set<int> staging = staging_gpus(node(), plan.transfers.front());
  for (const int gpu : staging) ASSERT_FALSE(context_active(gpu)) << "of a test before";
  const Stream stream = stream_on(0);

  const Traffic before(*context);
  copy(*context, first.transfer(stream.get()));
  synchronize(stream.get());
  EXPECT_TRUE(first.arrived());
  EXPECT_TRUE(before.went_natively(NativeReason::not_ready, *bytes));
  EXPECT_GT(before.excluded(ExclusionReason::not_ready), 0u);

  hold.end();
  context->wait_prepared();
  // The rounds of the first transfer asked for one route after the other.
  const Traffic after(*context);
  copy(*context, second.transfer(stream.get()));
  synchronize(stream.get());
  EXPECT_TRUE(second.arrived());
  EXPECT_TRUE(after.went_as(plan));
  for (const int gpu : staging) {
    EXPECT_TRUE(context_active(gpu));
    EXPECT_FALSE(spy.retained.contains(gpu)) << "made on the caller's path: gpu" << gpu;
  }
}

TEST_P(PreparationTest, NothingIsPreparedThatNoRouteUses) {
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const auto expect_nothing = [&](Context& context, std::uint64_t bytes) {
    const Payload data = payload({MemoryId::gpu(0), far, bytes});
    const Stream stream = stream_on(0);
    copy(context, data.transfer(stream.get()));
    context.wait_prepared();
    synchronize(stream.get());
    EXPECT_TRUE(data.arrived());
    for (int gpu = 2; gpu < gpus(); ++gpu) EXPECT_FALSE(context_active(gpu)) << "gpu" << gpu;
    for (const MemoryId memory : node().memories())
      EXPECT_EQ(context.resources().staging_bytes(memory), 0u) << to_string(memory);
  };
  const auto any = make_context();
  expect_nothing(*any, 100 * kKiB);
  const auto direct = make_context({{"routes", "direct"}});
  expect_nothing(*direct, 32 * kMiB);
  const auto large_only = make_context({{"min_size", "64M"}});
  expect_nothing(*large_only, 32 * kMiB);
}

// While a route of the plan is not ready others may serve, but they are not prepared for that.
TEST_P(PreparationTest, RoutesOfThePlanAlone_ArePrepared) {
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const auto context = make_context({{"max_routes", "2"}});
  const Payload data = payload({MemoryId::gpu(0), far, 64 * kMiB});
  const Plan plan = context->plan({data.request()});
  std::set<MemoryId> staged;
  for (const RouteShare& share : plan.transfers.front().routes)
    if (share.route.staged()) staged.insert(share.route.via);
  if (staged.empty()) GTEST_SKIP() << "nothing is split on this node";
  const Stream stream = stream_on(0);
  {
    // The plan without those routes is known at once, too.
    const Planner::Exact exact(context->planner());
    copy(*context, data.transfer(stream.get()));
  }
  context->wait_prepared();
  synchronize(stream.get());
  EXPECT_TRUE(data.arrived());
  for (const MemoryId memory : node().memories())
    EXPECT_EQ(context->resources().staging_bytes(memory) > 0, staged.contains(memory))
        << to_string(memory);
}

// Also where the plan is only computed while the first transfer goes.
TEST_P(PreparationTest, FirstTransfer_PreparesItsRoutes) {
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const auto other = make_context();
  const auto bytes = min_split(*other, MemoryId::gpu(0), far);
  if (!bytes) GTEST_SKIP() << "nothing is split on this node";
  Payload data = payload({MemoryId::gpu(0), far, *bytes});
  const Plan plan = other->plan({data.request()});
  BackgroundHold hold(driver());
  NodeSource held = source();
  held.driver = hold.driver();
  const auto context = GetParam().make(held, {});
  const Stream stream = stream_on(0);
  for (const bool is_prepared : {false, true}) {
    data.renew(random_());
    const Traffic traffic(*context);
    copy(*context, data.transfer(stream.get()));
    synchronize(stream.get());
    EXPECT_TRUE(data.arrived());
    EXPECT_TRUE(is_prepared ? traffic.went_as(plan)
                            : traffic.went_natively(NativeReason::not_ready, *bytes));
    hold.end();
    context->wait_prepared();
  }
}

TEST_P(PreparationTest, ContextReleasesWhatItCreated) {
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  std::set<int> inactive;
  for (int gpu = 2; gpu < gpus(); ++gpu)
    if (!context_active(gpu)) inactive.insert(gpu);
  for (int round = 0; round < 3; ++round) {
    const auto context = make_context();
    expect_transfer(*context, {MemoryId::gpu(0), far, 32 * kMiB});
  }
  for (const int gpu : inactive) EXPECT_FALSE(context_active(gpu)) << "gpu" << gpu;
}

TEST_P(PreparationTest, StagingMemoryIsMadeByCallsThatDoNotWait) {
  int supported = 0;
  POLYPATH_CHECK(
      driver(),
      device_get_attribute(&supported,
                           CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  if (supported == 0) GTEST_SKIP() << "the driver cannot map host memory";
  std::set<std::string> called;
  const HookedDriver hooked(driver(), [&](const std::string& name) { called.insert(name); });
  NodeSource with_hooks = source();
  with_hooks.driver = hooked.driver();
  const auto context = GetParam().make(with_hooks, {});
  for (const MemoryId dst : memories())
    if (dst != MemoryId::gpu(0)) context->prepare({{MemoryId::gpu(0), dst, 64 * kMiB}});
  std::uint64_t staging = 0;
  for (const MemoryId memory : node().memories())
    staging += context->resources().staging_bytes(memory);
  if (staging == 0) GTEST_SKIP() << "nothing is staged on this node";
  EXPECT_TRUE(called.contains("stream_create"));
  for (const char* waits : {"mem_alloc", "mem_host_alloc"})
    EXPECT_FALSE(called.contains(waits)) << waits;
}

INSTANTIATE_TEST_SUITE_P(Graph, PreparationTest, testing::Values(executor_case("graph")),
                         kCaseName);
INSTANTIATE_TEST_SUITE_P(Stream, PreparationTest, testing::Values(executor_case("stream")),
                         kCaseName);

}  // namespace
}  // namespace polypath::test
