// Copies that are left to the caller when they are not split, and the sizes below which none is.
#include "core/report.hpp"

#include <algorithm>
#include "support/background_hold.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

class TryCopyTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    stream_.emplace(stream_on(0));
  }
  Request wide(std::uint64_t bytes) { return {MemoryId::gpu(0), far(), bytes}; }

  std::optional<Stream> stream_;
};

TEST_F(TryCopyTest, SplittableCopy_IsIssued) {
  if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  Context context(source(), {});
  context.prepare({wide(kSplitBytes)});
  ASSERT_FALSE(context.plan({wide(kSplitBytes)}).native());
  const Payload data = payload({MemoryId::gpu(0), far(), kSplitBytes});
  const Traffic traffic(context);
  EXPECT_TRUE(context.try_copy_async(data.transfer(stream_->get())));
  synchronize(stream_->get());
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(traffic.split(), 1u);
  EXPECT_EQ(traffic.native(), 0u);
}

TEST_F(TryCopyTest, SequencedCopy_DoesNotWait) {
  if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  Context context(source(), {});
  context.prepare({wide(kSplitBytes)});
  const Payload data = payload({MemoryId::gpu(0), far(), kSplitBytes});
  const Payload two = payload({MemoryId::gpu(0), far(), kSplitBytes});
  Transfer second = two.transfer(stream_->get());
  second.follows = true;
  const Traffic traffic(context);
  EXPECT_TRUE(context.try_copy_async(data.transfer(stream_->get())));
  EXPECT_TRUE(context.try_copy_async(second));
  synchronize(stream_->get());
  EXPECT_TRUE(data.arrived());
  EXPECT_TRUE(two.arrived());
  EXPECT_EQ(traffic.split(), 2u);
  EXPECT_EQ(traffic.followed(), 1u);
}

TEST_F(TryCopyTest, CopyAfterOwnNativeCopy_WaitsForIt) {
  if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  Context context(source(), {});
  context.prepare({wide(kSplitBytes)});
  const Payload data = payload({MemoryId::gpu(0), far(), kSplitBytes});
  const Payload small = payload({MemoryId::gpu(0), far(), 64 * kKiB});
  const Payload two = payload({MemoryId::gpu(0), far(), kSplitBytes});
  Transfer last = two.transfer(stream_->get());
  last.follows = true;
  const Traffic traffic(context);
  context.copy_async(data.transfer(stream_->get()));
  context.copy_async(small.transfer(stream_->get()));
  context.copy_async(last);
  synchronize(stream_->get());
  EXPECT_TRUE(data.arrived());
  EXPECT_TRUE(small.arrived());
  EXPECT_TRUE(two.arrived());
  EXPECT_EQ(traffic.split(), 2u);
  EXPECT_EQ(traffic.native(NativeReason::small), 1u);
  EXPECT_EQ(traffic.followed(), 0u);
}

TEST_F(TryCopyTest, UnsplittableCopy_IsLeftToCaller) {
  Context context(source(), {});
  context.prepare({wide(kSplitBytes)});
  const Payload small = payload({MemoryId::gpu(0), far(), 64 * kKiB});
  const Payload within = payload({MemoryId::gpu(0), MemoryId::gpu(0), kSplitBytes});
  const Traffic traffic(context);
  EXPECT_FALSE(context.try_copy_async(small.transfer(stream_->get())));
  EXPECT_FALSE(context.try_copy_async(within.transfer(stream_->get())));
  synchronize(stream_->get());
  EXPECT_TRUE(small.untouched());
  EXPECT_TRUE(within.untouched());
  EXPECT_EQ(traffic.native(NativeReason::small), 1u);
  EXPECT_EQ(traffic.native(NativeReason::same_memory), 1u);
  EXPECT_EQ(traffic.split(), 0u);
}

TEST_F(TryCopyTest, UnreadyRoutes_AreDeclinedOrWaitedFor) {
  if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  const Payload data = payload({MemoryId::gpu(0), far(), kSplitBytes});
  {
    BackgroundHold hold(driver());
    NodeSource held = source();
    held.driver = hold.driver();
    Context context(held, {});
    const Traffic traffic(context);
    EXPECT_FALSE(context.try_copy_async(data.transfer(stream_->get())));
    synchronize(stream_->get());
    EXPECT_TRUE(data.untouched());
    EXPECT_EQ(traffic.native(NativeReason::not_ready), 1u);
    hold.end();
    context.wait_prepared();
  }
  Context context(source(), {{"prepare", "wait"}});
  const Traffic traffic(context);
  EXPECT_TRUE(context.try_copy_async(data.transfer(stream_->get())));
  synchronize(stream_->get());
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(traffic.split(), 1u);
  EXPECT_EQ(traffic.excluded(ExclusionReason::not_ready), 0u);
}

TEST_F(TryCopyTest, ThresholdsAreTheLeastSizesThatPlansSplit) {
  Context context(source(), {});
  const Thresholds least = context.smallest_split();
  const auto check = [&](std::uint64_t threshold, const std::vector<Request>& kind) {
    const auto split = [&](std::uint64_t bytes) {
      return std::ranges::any_of(kind, [&](Request request) {
        request.bytes = bytes;
        return !context.plan({request}).native();
      });
    };
    const bool ever = threshold != UINT64_MAX;
    EXPECT_EQ(ever, split(kGiB));
    if (ever) {
      EXPECT_TRUE(split(threshold));
    }
    for (std::uint64_t bytes = ever ? threshold - 4 * kKiB : kGiB; bytes >= 256 * kKiB; bytes /= 2)
      EXPECT_FALSE(split(bytes)) << bytes;
  };
  std::vector<Request> in;
  std::vector<Request> out;
  std::vector<Request> between;
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    for (std::size_t host = 0; host < node().hosts.size(); ++host) {
      in.push_back({MemoryId::host(static_cast<int>(host)), MemoryId::gpu(gpu), 0});
      out.push_back({MemoryId::gpu(gpu), MemoryId::host(static_cast<int>(host)), 0});
    }
    for (int other = 0; other < gpus(); ++other)
      if (other != gpu) between.push_back({MemoryId::gpu(gpu), MemoryId::gpu(other), 0});
  }
  check(least.host_to_gpu, in);
  check(least.gpu_to_host, out);
  check(least.gpu_to_gpu, between);

  const Thresholds direct = Context(source(), {{"routes", "direct"}}).smallest_split();
  EXPECT_EQ(direct.host_to_gpu, UINT64_MAX);
  EXPECT_EQ(direct.gpu_to_host, UINT64_MAX);
  EXPECT_EQ(direct.gpu_to_gpu, UINT64_MAX);
  EXPECT_EQ(Context(source(), {{"min_size", "256M"}}).smallest_split().gpu_to_gpu,
            gpus() > 1 ? 256 * kMiB : UINT64_MAX);
}

TEST_F(TryCopyTest, ReportNamesRoutesAndReasons) {
  if (gpus() < 2) GTEST_SKIP() << "needs two GPUs";
  Context context(source(), {});
  context.prepare({wide(kSplitBytes)});
  const Payload data = payload({MemoryId::gpu(0), far(), kSplitBytes});
  const Payload within = payload({MemoryId::gpu(0), MemoryId::gpu(0), kSplitBytes});
  EXPECT_TRUE(context.try_copy_async(data.transfer(stream_->get())));
  EXPECT_FALSE(context.try_copy_async(within.transfer(stream_->get())));
  synchronize(stream_->get());
  EXPECT_TRUE(data.arrived());
  const std::string text = report(context);
  for (const char* const part : {"transfers: 2 (67.1 MB), 1 split into", "1 native, 0 failed",
                                 "same memory (1)", "direct: ", "%\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
}

}  // namespace
}  // namespace polypath::test
