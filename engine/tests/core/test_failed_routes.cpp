// Routes that never work again: a GPU whose context has a sticky error, an event pool without
// events. The program's copies of other GPUs are still right.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "support/hooked_driver.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

constexpr CUresult kSticky = CUDA_ERROR_LAUNCH_FAILED;

struct Case {
  const char* name;
  const char* executor;
  bool is_from_host;
};

class FailedRelay : public SimulatedTest, public testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    if (gpus() < 3) GTEST_SKIP() << "there is no third GPU";
    context_of(gpus() - 1);
    arguments_ = {{"executor", GetParam().executor}, {"chunks", "4"}, {"load", "off"}};
    // What goes over GPUs, in the context that a test uses.
    request_ = {GetParam().is_from_host ? MemoryId::host(0) : MemoryId::gpu(1), MemoryId::gpu(0),
                0};
    Context planning(source(), arguments_);
    request_.bytes = 2 * min_split(planning, request_.src, request_.dst).value_or(kMiB) + 1;
    const Plan plan = planning.plan({request_});
    for (const RouteShare& share : plan.transfers.front().routes)
      if (share.route.staged() && share.route.via.is_gpu()) relays_.insert(share.route.via.index);
    if (relays_.empty()) GTEST_SKIP() << "no GPU relays";
    for (const int relay : relays_) context_of(relay);
    one_.emplace(driver(), node(), Payload::Shape{request_.src, request_.dst, request_.bytes},
                 random_());
    stream_.emplace(stream_on(0));
  }
  void TearDown() override {
    for (const int relay : relays_) fail_context(driver(), relay, CUDA_SUCCESS);
    SimulatedTest::TearDown();
  }
  [[nodiscard]] int relay() const { return *relays_.begin(); }

  /// As if none had failed, and waits for what they have issued.
  void end_relays() {
    fail_context(driver(), relay(), CUDA_SUCCESS);
    for (const int each : relays_) {
      const CurrentContext current(driver(), context_of(each));
      POLYPATH_CHECK(driver(), ctx_synchronize());
    }
  }
  void copy_and_verify(Context& context) {
    one_->renew(random_());
    EXPECT_NO_THROW(context.copy_async(one_->transfer(stream_->get())));
    ASSERT_TRUE(completes(stream_->get()));
    EXPECT_TRUE(one_->arrived());
  }

  OptionArguments arguments_;
  Request request_;
  std::set<int> relays_;
  std::optional<Payload> one_;
  std::optional<Stream> stream_;
};

TEST_P(FailedRelay, CopyArrives_RelayIsLeftOut) {
  Context context(source(), arguments_);
  context.prepare({request_});
  copy_and_verify(context);
  fail_context(driver(), relay(), kSticky);
  set_log_level(LogLevel::warn);
  testing::internal::CaptureStderr();
  const Traffic failing(context);
  copy_and_verify(context);
  EXPECT_EQ(failing.failed(), 0u);
  EXPECT_EQ(failing.native(NativeReason::driver_error), 1u);
  context.wait_prepared();
  copy_and_verify(context);
  context.wait_prepared();  // the plan without the relay
  const Traffic after(context);
  for (int i = 0; i < 3; ++i) copy_and_verify(context);
  EXPECT_EQ(after.failed(), 0u);
  EXPECT_EQ(after.native(NativeReason::driver_error), 0u) << "the relay is tried no more";
  EXPECT_EQ(after.excluded(ExclusionReason::failed), 3u);
  const std::string output = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
  EXPECT_THAT(output, testing::HasSubstr("GPU " + std::to_string(relay()) + " is not used"));
  EXPECT_THAT(output, testing::HasSubstr("CUDA_ERROR_LAUNCH_FAILED (719)"));
}

TEST_P(FailedRelay, CopyIsLeftToCaller) {
  Context context(source(), arguments_);
  context.prepare({request_});
  fail_context(driver(), relay(), kSticky);
  one_->renew(random_());
  const Transfer transfer = one_->transfer(stream_->get());
  bool issued = true;
  EXPECT_NO_THROW(issued = context.try_copy_async(transfer));
  EXPECT_FALSE(issued);
  POLYPATH_CHECK(driver(),
                 memcpy_async(transfer.dst, transfer.src, transfer.bytes, transfer.stream));
  ASSERT_TRUE(completes(stream_->get()));
  EXPECT_TRUE(one_->arrived());
}

// What was issued before is under way when the native copy is issued, and writes nothing after it.
TEST_P(FailedRelay, FailureAtAnyCall_CopyArrives) {
  int left = 0;
  const HookedDriver hooked(driver(), [&](const std::string&) {
    if (left > 0 && --left == 0) fail_context(driver(), relay(), kSticky);
  });
  NodeSource failing = source();
  failing.driver = hooked.driver();
  int calls = 0;
  for (int at = 1;; ++at) {
    SCOPED_TRACE("call " + std::to_string(at));
    POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
    Context context(failing, arguments_);
    context.prepare({request_});
    copy_and_verify(context);
    one_->renew(random_());
    left = at;
    EXPECT_NO_THROW(context.copy_async(one_->transfer(stream_->get())));
    const bool is_met = std::exchange(left, 0) == 0;
    ASSERT_TRUE(completes(stream_->get()));
    EXPECT_TRUE(one_->arrived());
    // On GPUs what a context has issued ends when it fails. Here it goes on, in real time for
    // longer than the native copy.
    if (!source().virtual_time) end_relays();
    one_->renew(random_());
    end_relays();
    EXPECT_TRUE(one_->untouched()) << "written late";
    calls = at;
    if (!is_met || HasFailure()) break;
  }
  EXPECT_GT(calls, 3);
}

TEST_P(FailedRelay, GroupArrives) {
  Context context(source(), arguments_);
  Payload back = payload({MemoryId::gpu(0), MemoryId::host(0), kSplitBytes});
  const Stream other = stream_on(0);
  context.prepare({request_, back.request()});
  fail_context(driver(), relay(), kSticky);
  for (int i = 0; i < 2; ++i) {
    one_->renew(random_());
    back.renew(random_());
    const std::vector<Transfer> group{one_->transfer(stream_->get()), back.transfer(other.get())};
    EXPECT_NO_THROW(context.group_copy_async(group));
    ASSERT_TRUE(completes(stream_->get()));
    ASSERT_TRUE(completes(other.get()));
    EXPECT_TRUE(one_->arrived());
    EXPECT_TRUE(back.arrived());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Executors, FailedRelay,
    testing::Values(Case{.name = "Streams", .executor = "stream", .is_from_host = false},
                    Case{.name = "StreamsFromHost", .executor = "stream", .is_from_host = true},
                    Case{.name = "Graphs", .executor = "graph", .is_from_host = false}),
    [](const auto& test_case) { return std::string(test_case.param.name); });

/// Events cannot be made any more, and the pool has fewer than a copy needs: it ends with an error
/// at each place where it takes one, also after the first leg.
class LostEvents : public SimulatedTest {
 protected:
  /// Takes events out of the pool until `events` of each GPU remain. An empty pool throws.
  void leave(EventPool& pool, int events) {
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      const std::size_t first = taken_.size();
      try {
        while (true) taken_.emplace_back(gpu, pool.acquire(gpu));
      } catch (const DriverError&) {
        for (int i = 0; i < events && taken_.size() > first; ++i) release_last(pool);
      }
    }
  }
  void release_all(EventPool& pool) {
    while (!taken_.empty()) release_last(pool);
  }

 private:
  void release_last(EventPool& pool) {
    pool.release(taken_.back().first, taken_.back().second);
    taken_.pop_back();
  }
  std::vector<std::pair<int, CUevent>> taken_;
};

TEST_F(LostEvents, CopyArrives) {
  std::atomic<bool> is_failing{false};
  std::atomic<bool> has_begun{false};
  std::atomic<int> lost_midway{0};
  const HookedDriver hooked(driver(), [&](const std::string& name) {
    if (name == "memcpy_async") has_begun = true;
    if (name != "event_create" || !is_failing) return;
    if (has_begun) ++lost_midway;
    throw DriverError("cuEventCreate failed", CUDA_ERROR_OUT_OF_MEMORY);
  });
  NodeSource failing = source();
  failing.driver = hooked.driver();
  Context context(failing, {{"executor", "stream"}, {"load", "off"}});
  const std::uint64_t bytes = min_split(context, MemoryId::gpu(0), far()).value_or(kMiB);
  Payload data = payload({MemoryId::gpu(0), far(), bytes});
  if (context.plan({data.request()}).native()) GTEST_SKIP() << "nothing is split";
  const Stream stream = stream_on(0);
  EventPool& events = context.resources().events();
  for (int left = 0; left < 12; ++left) {
    SCOPED_TRACE(left);
    context.prepare({data.request()});
    context.wait_prepared();
    is_failing = true;
    leave(events, left);
    data.renew(random_());
    has_begun = false;
    EXPECT_NO_THROW(context.copy_async(data.transfer(stream.get())));
    is_failing = false;
    release_all(events);
    ASSERT_TRUE(completes(stream.get()));
    EXPECT_TRUE(data.arrived());
  }
  EXPECT_GT(lost_midway, 0);
}

}  // namespace
}  // namespace polypath::test
