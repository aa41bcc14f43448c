// Two threads issue at the same time: in any call of the driver a thread holds nothing that the
// other thread waits for (DESIGN: decision 5).
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <thread>

#include "behaviour_test.hpp"
#include "support/gate.hpp"
#include "support/hooked_driver.hpp"

namespace polypath::test {
namespace {

/// Stops one thread in its nth call of the driver, until the test lets it continue.
class StopSign {
 public:
  /// Before the thread starts.
  void set(int call) {
    const std::lock_guard lock(mutex_);
    thread_ = {};
    left_ = call;
    stopped_ = false;
    ended_ = false;
    go_ = false;
  }
  /// Chooses the calling thread as the one that stops.
  void stop_me() {
    const std::lock_guard lock(mutex_);
    thread_ = std::this_thread::get_id();
  }
  void pass(const std::string& name) {
    std::unique_lock lock(mutex_);
    if (std::this_thread::get_id() != thread_ || --left_ != 0) return;
    name_ = name;
    stopped_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return go_; });
  }
  /// The thread made fewer calls than that.
  void ended() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  /// Whether the thread stops; false when it ended.
  bool wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || ended_; });
    return stopped_;
  }
  void go() {
    const std::lock_guard lock(mutex_);
    go_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] std::string name() {
    const std::lock_guard lock(mutex_);
    return name_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread::id thread_;
  std::string name_;
  int left_ = 0;
  bool stopped_ = false;
  bool ended_ = false;
  bool go_ = false;
};

TEST_P(ThreadsTest, IssueDuringAnyCallOfAnotherThread) {
  StopSign sign;
  const HookedDriver hooked(driver(), [&](const std::string& name) { sign.pass(name); });
  NodeSource with_hooks = source();
  with_hooks.driver = hooked.driver();
  // Two graphs: the third shape evicts. Few chunks make few calls.
  // Each is planned as if alone: they are split.
  const auto context =
      GetParam().make(with_hooks, {{"chunks", "2"}, {"graph_cache_size", "2"}, {"load", "off"}});
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const auto least = min_split(*context, MemoryId::gpu(0), far);
  if (!least) GTEST_SKIP() << "nothing is split on this node";
  std::deque<Payload> stopped;
  for (std::uint64_t i = 0; i < 3; ++i) add(stopped, {MemoryId::gpu(0), far, *least + 4096 * i});
  Payload free = payload({MemoryId::gpu(0), far, *least});
  Payload back = payload({far, MemoryId::gpu(0), *least});
  context->prepare(std::vector<Request>(4, free.request()));
  context->prepare(std::vector<Request>(4, back.request()));
  const Stream first_stream = stream_on(0);
  const Stream other = stream_on(0);
  const Stream third = stream_on(far.is_gpu() ? far.index : 0);
  std::set<std::string> met;

  // A row of transfers that finds its graphs makes fewer calls than others.
  constexpr int kEnough = 3;
  int rows_without_stop = 0;
  const int stride = *least <= 4 * kMiB ? 1 : 7;
  for (int call = 1; rows_without_stop < kEnough; call += stride) {
    for (Payload& payload : stopped) payload.renew(random_());
    free.renew(random_());
    back.renew(random_());
    const Traffic traffic(*context);
    // Builds, evicts or patches with each transfer.
    sign.set(call);
    std::thread first([&] {
      const CurrentContext current(driver(), context_of(0));
      sign.stop_me();
      for (const Payload& payload : stopped)
        context->copy_async(payload.transfer(first_stream.get()));
      sign.ended();
    });
    const bool stops = sign.wait();
    rows_without_stop = stops ? 0 : rows_without_stop + 1;
    std::future<void> second = std::async(std::launch::async, [&] {
      const CurrentContext current(driver(), context_of(0));
      context->copy_async(free.transfer(other.get()));
      context->copy_async(back.transfer(third.get()));
    });
    const bool passed = second.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
    EXPECT_TRUE(passed) << "waits for the thread that is in call " << call << ", " << sign.name();
    if (stops) met.insert(sign.name());
    sign.go();
    second.get();
    first.join();
    for (const CUstream stream : {first_stream.get(), other.get(), third.get()})
      ASSERT_TRUE(completes(stream));
    for (const Payload& payload : stopped) EXPECT_TRUE(payload.arrived());
    EXPECT_TRUE(free.arrived());
    EXPECT_TRUE(back.arrived());
    EXPECT_EQ(traffic.failed(), 0u);
    EXPECT_EQ(traffic.split() + traffic.native(), 5u);
    EXPECT_GT(traffic.split(), 1u) << "both threads' transfers were split";
    if (HasFailure()) return;
  }
  if (stride > 1) return;
  EXPECT_TRUE(met.contains("event_record"));
  // On worker threads a transfer may find its graphs in flight, or not, and go by streams.
  const char* const mode = std::getenv("POLYPATH_SIM_MODE");
  if (mode != nullptr && std::string(mode) == "functional") return;
  EXPECT_TRUE(met.contains(GetParam().name == "graph" ? "graph_launch" : "memcpy_async"));
}

/// A driver that does not tell streams apart.
NodeSource without_ids(const NodeSource& source) {
  auto table = std::make_shared<CudaDriver>(*source.driver);
  table->stream_get_id = nullptr;
  NodeSource copy = source;
  copy.driver = std::move(table);
  return copy;
}

TEST_P(ThreadsTest, NoStreamIds_HeldThreadHoldsNoOther) {
  if (driver().stream_wait_value32 == nullptr) GTEST_SKIP() << "no cuStreamWaitValue32";
  const auto context = GetParam().make(without_ids(source()), {});
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const std::uint64_t bytes = min_split(*context, MemoryId::gpu(0), far).value_or(kMiB);
  const Payload held = payload({MemoryId::gpu(0), far, bytes});
  const Payload free = payload({MemoryId::gpu(0), far, bytes});
  context->prepare(std::vector<Request>(2, held.request()));
  Gate gate(driver(), context_of(0));
  const Traffic traffic(*context);
  gate.hold(CU_STREAM_PER_THREAD, context_of(0));
  copy(*context, held.transfer(CU_STREAM_PER_THREAD));
  // To read a destination in host memory waits for the held stream, which blocks GPU 0's default one.
  const bool is_readable = far.is_gpu();
  // The same handle, another stream.
  std::thread other([&] {
    const CurrentContext current(driver(), context_of(0));
    context->copy_async(free.transfer(CU_STREAM_PER_THREAD));
    EXPECT_TRUE(completes(CU_STREAM_PER_THREAD));
    if (is_readable) {
      EXPECT_TRUE(free.arrived());
    }
  });
  other.join();
  if (is_readable) {
    EXPECT_TRUE(held.untouched());
  }
  gate.open();
  ASSERT_TRUE(completes(CU_STREAM_PER_THREAD));
  EXPECT_TRUE(held.arrived());
  EXPECT_TRUE(free.arrived());
  EXPECT_EQ(traffic.failed(), 0u);
  EXPECT_EQ(traffic.split() + traffic.native(), 2u);
}

TEST_P(ThreadsTest, NoStreamIds_EveryByteArrives) {
  const auto context = GetParam().make(without_ids(source()), {});
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const std::uint64_t bytes = min_split(*context, MemoryId::gpu(0), far).value_or(kMiB);
  context->prepare({{MemoryId::gpu(0), far, bytes}});
  context_of(0);
  constexpr int kThreads = 3;
  constexpr int kTransfers = 12;
  std::vector<std::deque<Payload>> payloads(kThreads);
  for (auto& own : payloads)
    for (int i = 0; i < kTransfers; ++i) add(own, {MemoryId::gpu(0), far, bytes});
  const Traffic traffic(*context);
  std::vector<std::thread> threads;
  for (const auto& own : payloads)
    threads.emplace_back([&] {
      const CurrentContext current(driver(), context_of(0));
      for (const Payload& payload : own)
        context->copy_async(payload.transfer(CU_STREAM_PER_THREAD));
      EXPECT_TRUE(completes(CU_STREAM_PER_THREAD));
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& own : payloads)
    for (const Payload& payload : own) EXPECT_TRUE(payload.arrived());
  EXPECT_EQ(traffic.bytes(), 1u * kThreads * kTransfers * bytes);
  EXPECT_EQ(traffic.failed(), 0u);
  if (!context->plan({{MemoryId::gpu(0), far, bytes}}).native()) {
    EXPECT_GT(traffic.split(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Graph, ThreadsTest, testing::Values(executor_case("graph")), kCaseName);
INSTANTIATE_TEST_SUITE_P(Stream, ThreadsTest, testing::Values(executor_case("stream")), kCaseName);

}  // namespace
}  // namespace polypath::test
