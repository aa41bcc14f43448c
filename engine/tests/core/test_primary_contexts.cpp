// Primary contexts: no thread waits while one is made, and nothing goes wrong when the program
// resets one.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>

#include "base/log.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

constexpr auto kTimeout = std::chrono::minutes(1);

// ---- a driver that takes its time
// --------------------------------------------------------------------

/// Stops callers that pass, until it is opened.
class Gate {
 public:
  void close() { set(true); }
  void open() { set(false); }
  void pass() {
    std::unique_lock lock(mutex_);
    if (!closed_) return;
    waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !closed_; });
  }
  /// True: a thread waits at the gate, within a minute.
  bool reached() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTimeout, [&] { return waiting_; });
  }

 private:
  void set(bool closed) {
    const std::lock_guard lock(mutex_);
    closed_ = closed;
    waiting_ = false;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  bool waiting_ = false;
};

Gate& retaining() {
  static Gate gate;
  return gate;
}
Gate& enabling() {
  static Gate gate;
  return gate;
}
CudaDriver& below() {
  static CudaDriver driver;
  return driver;
}

std::shared_ptr<const CudaDriver> slow_driver(const CudaDriver& driver) {
  below() = driver;
  auto table = std::make_shared<CudaDriver>(driver);
  table->primary_ctx_retain = [](CUcontext* context, CUdevice gpu) {
    unsigned int flags = 0;
    int active = 0;
    const CUresult result = below().primary_ctx_get_state(gpu, &flags, &active);
    if (result == CUDA_SUCCESS && active == 0) retaining().pass();
    return below().primary_ctx_retain(context, gpu);
  };
  table->ctx_enable_peer_access = [](CUcontext peer, unsigned int flags) {
    enabling().pass();
    return below().ctx_enable_peer_access(peer, flags);
  };
  return table;
}

class PrimaryContextTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    if (gpus() < 4) GTEST_SKIP() << "needs GPUs to stage on";
    context_of(1);
    stream_.emplace(stream_on(0));
  }

  static Request wide() { return {MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes}; }

  /// A GPU that the wide transfer is staged on, or -1.
  static int staged_on(Context& context) {
    const Plan plan = context.plan({wide()});
    for (const RouteShare& share : plan.transfers.front().routes)
      if (share.route.staged() && share.route.via.is_gpu()) return share.route.via.index;
    return -1;
  }

  /// While a background thread stands before `gate`, others copy.
  void copies_meanwhile(Gate& gate) {
    NodeSource source = this->source();
    source.driver = slow_driver(driver());
    const Payload first = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
    const Payload second = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
    Context context(source, {});
    if (staged_on(context) < 0) GTEST_SKIP() << "nothing is staged on a GPU here";
    gate.close();
    copy(context, first.transfer(stream_->get()));
    const bool reached = gate.reached();
    auto other = std::async(std::launch::async, [&] {
      const CurrentContext current(driver(), context_of(0));
      context.copy_async(second.transfer(stream_->get()));
    });
    const bool waited = other.wait_for(kTimeout) != std::future_status::ready;
    gate.open();
    other.get();
    EXPECT_TRUE(reached) << "nothing was prepared";
    EXPECT_FALSE(waited) << "a copy waited for the preparation of routes";
    synchronize(stream_->get());
    EXPECT_TRUE(first.arrived());
    EXPECT_TRUE(second.arrived());
    context.wait_prepared();
  }

  /// The references of all users stay; the objects that they made are gone.
  void reset(int gpu) {
    const auto reset = driver_function<CUresult(CUdevice)>(driver(), "cuDevicePrimaryCtxReset_v2");
    ASSERT_NE(reset, nullptr);
    ASSERT_EQ(reset(gpu), CUDA_SUCCESS);
  }

  /// The warnings of its destructor.
  static std::string said_by_the_end_of(std::unique_ptr<Context>& context) {
    set_log_level(LogLevel::warn);
    testing::internal::CaptureStderr();
    context.reset();
    set_log_level(LogLevel::off);
    return testing::internal::GetCapturedStderr();
  }

  std::optional<Stream> stream_;
};

TEST_F(PrimaryContextTest, CopyDoesNotWaitForContextCreation) { copies_meanwhile(retaining()); }

TEST_F(PrimaryContextTest, CopyDoesNotWaitForPeerAccess) { copies_meanwhile(enabling()); }

// The simulated driver makes none of them before both are being made.
TEST_F(PrimaryContextTest, SeveralContexts_AreMadeAtOnce) {
  Context context(source(), {{"prepare_threads", "4"}});
  const Plan plan = context.plan({wide()});
  const auto to_make =
      std::ranges::count_if(plan.transfers.front().routes, [&](const RouteShare& share) {
        return share.route.staged() && share.route.via.is_gpu() &&
               !context_active(share.route.via.index);
      });
  if (to_make < 2) GTEST_SKIP() << "no two routes over other GPUs here";
  const auto hold = driver_function<void(int)>(driver(), "polypath_sim_hold_contexts");
  const auto at_once = driver_function<std::uint64_t()>(driver(), "polypath_sim_contexts_at_once");
  Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
  reset_sim_counters(driver());
  hold(2);
  copy(context, data.transfer(stream_->get()));
  context.wait_prepared();
  hold(0);
  EXPECT_GE(at_once(), 2u);
  synchronize(stream_->get());
  EXPECT_TRUE(data.arrived());

  data.renew(random_());
  const Traffic traffic(context);
  copy(context, data.transfer(stream_->get()));
  synchronize(stream_->get());
  EXPECT_TRUE(data.arrived());
  EXPECT_TRUE(traffic.went_as(plan));
}

TEST_F(PrimaryContextTest, SingleThread_CreatesOneAtATime) {
  Context context(source(), {{"prepare_threads", "1"}});
  const auto at_once = driver_function<std::uint64_t()>(driver(), "polypath_sim_contexts_at_once");
  Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
  const Plan plan = context.plan({wide()});
  if (staged_on(context) < 0) GTEST_SKIP() << "nothing is staged on a GPU here";
  reset_sim_counters(driver());
  copy(context, data.transfer(stream_->get()));
  context.wait_prepared();
  EXPECT_EQ(at_once(), 1u);
  data.renew(random_());
  const Traffic traffic(context);
  copy(context, data.transfer(stream_->get()));
  synchronize(stream_->get());
  EXPECT_TRUE(data.arrived());
  EXPECT_TRUE(traffic.went_as(plan));
}

// A route by host memory needs no further context here: it is used while those of others are made.
TEST_F(PrimaryContextTest, ReadyRoute_IsUsedBeforeOthers) {
  NodeSource source = this->source();
  source.driver = slow_driver(driver());
  Context context(source, {});
  const Plan plan = context.plan({wide()});
  const auto is_by_host = [](const RouteShare& share) {
    return share.route.staged() && share.route.via.is_host();
  };
  if (staged_on(context) < 0 || std::ranges::none_of(plan.transfers.front().routes, is_by_host))
    GTEST_SKIP() << "no routes by GPUs and by the host here";
  Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
  retaining().close();
  copy(context, data.transfer(stream_->get()));
  synchronize(stream_->get());
  EXPECT_TRUE(data.arrived());
  bool is_split = false;
  const auto until = std::chrono::steady_clock::now() + kTimeout;
  while (!is_split && std::chrono::steady_clock::now() < until) {
    data.renew(random_());
    const Traffic traffic(context);
    copy(context, data.transfer(stream_->get()));
    synchronize(stream_->get());
    ASSERT_TRUE(data.arrived());
    is_split = traffic.split() == 1;
    for (int gpu = 2; gpu < gpus(); ++gpu) EXPECT_FALSE(context_active(gpu)) << "gpu" << gpu;
  }
  retaining().open();
  EXPECT_TRUE(is_split);
  context.wait_prepared();
}

// ---- reset --------------------------------------------------------------------

TEST_F(PrimaryContextTest, StagingGpuReset_CopiesAreNative) {
  for (const char* const executor : {"stream", "graph"}) {
    SCOPED_TRACE(executor);
    auto context = std::make_unique<Context>(source(), OptionArguments{{"executor", executor}});
    context->prepare({wide()});
    const int via = staged_on(*context);
    if (via < 0) GTEST_SKIP() << "nothing is staged on a GPU here";
    Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
    const LiveObjects before = live_objects(driver());
    {
      const Traffic traffic(*context);
      copy(*context, data.transfer(stream_->get()));
      synchronize(stream_->get());
      EXPECT_TRUE(data.arrived());
      EXPECT_EQ(traffic.split(), 1u);
    }
    reset(via);
    for (int i = 0; i < 2; ++i) {
      data.renew(random_());
      const Traffic traffic(*context);
      copy(*context, data.transfer(stream_->get()));
      synchronize(stream_->get());
      EXPECT_TRUE(data.arrived());
      EXPECT_TRUE(traffic.went_natively(NativeReason::context_reset, kSplitBytes));
    }
    reset_sim_counters(driver());
    EXPECT_EQ(said_by_the_end_of(context), "");
    EXPECT_EQ(graph_misuse(driver()), GraphMisuse{});
    EXPECT_LE(live_objects(driver()).streams, before.streams);
  }
}

TEST_F(PrimaryContextTest, CallersGpuReset_CopiesAreNative) {
  auto context = std::make_unique<Context>(source(), OptionArguments{});
  const Request in{MemoryId::host(0), MemoryId::gpu(2), kSplitBytes};
  context->prepare({in});
  if (context->plan({in}).native()) GTEST_SKIP() << "nothing is split here";
  CUcontext own = nullptr;
  POLYPATH_CHECK(driver(), primary_ctx_retain(&own, 2));
  reset(2);
  POLYPATH_CHECK(driver(), primary_ctx_release(2));
  POLYPATH_CHECK(driver(), primary_ctx_retain(&own, 2));
  {
    const Payload data = payload({MemoryId::host(0), MemoryId::gpu(2), kSplitBytes});
    const Stream stream(driver(), own);
    const Traffic traffic(*context);
    copy(*context, data.transfer(stream.get()));
    synchronize(stream.get());
    EXPECT_TRUE(data.arrived());
    EXPECT_TRUE(traffic.went_natively(NativeReason::context_reset, kSplitBytes));
  }
  EXPECT_EQ(said_by_the_end_of(context), "");
  POLYPATH_CHECK(driver(), primary_ctx_release(2));
}

}  // namespace
}  // namespace polypath::test
