// Several threads share one context.
#include <thread>

#include "behaviour_test.hpp"

namespace polypath::test {
namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 6;

TEST_P(ThreadsTest, ThreadsShareAContext) {
  const auto context = make_context();
  const auto all = memories();
  for (int gpu = 0; gpu < gpus(); ++gpu) context_of(gpu);
  const Traffic traffic(*context);

  // Nothing is prepared: the background thread makes routes ready while transfers go.
  const auto work = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const int gpu = static_cast<int>(seed) % gpus();
    const CurrentContext current(driver(), context_of(gpu));
    const Stream stream(driver(), context_of(gpu));
    for (int round = 0; round < kRounds; ++round) {
      const MemoryId src = all[random() % all.size()];
      const MemoryId dst = all[random() % all.size()];
      const std::uint64_t bytes = 8 * kMiB + random() % kMiB;
      const Payload payload(driver(), node(), {src, dst, bytes, random() % 9, random() % 9},
                            random());
      if (round % 2 == 0) {
        copy(*context, payload.transfer(stream.get()));
      } else {
        const Transfer transfer = payload.transfer(stream.get());
        context->group_copy_async({&transfer, 1});
      }
      if (src != dst) static_cast<void>(context->plan({payload.request()}));
      ASSERT_TRUE(completes(stream.get()));
      EXPECT_TRUE(payload.arrived());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(traffic.split() + traffic.native(), 1u * kThreads * kRounds);
  EXPECT_EQ(traffic.failed(), 0u);
}

TEST_P(ThreadsTest, ThreadsQueueOnTheirOwnStreamsAtOnce) {
  const auto context = make_context();
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const std::uint64_t bytes = min_split(*context, MemoryId::gpu(0), far).value_or(kMiB);
  context->prepare({{MemoryId::gpu(0), far, bytes}});
  for (int gpu = 0; gpu < gpus(); ++gpu) context_of(gpu);
  const Traffic traffic(*context);

  const auto work = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const CurrentContext current(driver(), context_of(0));
    std::deque<Payload> payloads;
    const Stream stream(driver(), context_of(0));
    for (int i = 0; i < kRounds; ++i)
      payloads.emplace_back(driver(), node(), Payload::Shape{MemoryId::gpu(0), far, bytes},
                            random());
    for (const Payload& payload : payloads) copy(*context, payload.transfer(stream.get()));
    ASSERT_TRUE(completes(stream.get()));
    for (const Payload& payload : payloads) EXPECT_TRUE(payload.arrived());
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();

  const std::uint64_t transfers = 1u * kThreads * kRounds;
  EXPECT_EQ(traffic.bytes(), transfers * bytes);
  // A transfer that is planned anew without a busy route may want a route that is not prepared.
  EXPECT_EQ(traffic.split() + traffic.native(NativeReason::busy) +
                traffic.native(NativeReason::no_gain) + traffic.native(NativeReason::not_ready),
            transfers);
  if (!context->plan({{MemoryId::gpu(0), far, bytes}}).native()) {
    EXPECT_GT(traffic.split(), 0u);
  }
}

}  // namespace
}  // namespace polypath::test
