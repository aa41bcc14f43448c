// Transfers that follow each other on one stream: which of them may start with the fork of the first, and
// what that gains.
#include <array>

#include "exec/route_resources.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

class SequenceTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    devices_ = std::make_unique<Devices>(source().driver, gpus());
    events_ = std::make_unique<EventPool>(source().driver, *devices_);
  }
  std::shared_ptr<Ticket> ticket(unsigned long long stream = 1) {
    return std::make_shared<Ticket>(CallerStream{context_of(0), nullptr, stream},
                                    std::make_shared<PooledEvent>(*events_, 0));
  }

  std::unique_ptr<Devices> devices_;
  std::unique_ptr<EventPool> events_;
  Sequences sequences_;
};

TEST_F(SequenceTest, LaterOnesHaveTheForkOfTheFirst) {
  const auto first = ticket();
  EXPECT_EQ(sequences_.follow(first->caller()), nullptr);
  sequences_.add(first, {}, false);
  EXPECT_EQ(sequences_.follow(ticket(2)->caller()), nullptr) << "another stream";
  const auto second = sequences_.follow(first->caller());
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(second->in_sequence());
  EXPECT_EQ(second->fork(), first->fork());
  first->joined();
  EXPECT_FALSE(second->follows(*first)) << "its fork is not behind the end of the first";
  EXPECT_TRUE(ticket()->follows(*first));
  sequences_.end(first->caller());
  EXPECT_EQ(sequences_.follow(first->caller()), nullptr);
}

TEST_F(SequenceTest, ASequenceHasAnEnd) {
  const auto first = ticket();
  sequences_.add(first, {}, false);
  int transfers = 1;
  while (const auto next = sequences_.follow(first->caller())) {
    sequences_.add(next, {}, true);
    ASSERT_LT(++transfers, 1000);
  }
  EXPECT_GT(transfers, 16);
}

TEST_F(SequenceTest, WhatTouchesTheSameBytesNeedsAForkOfItsOwn) {
  Channel a;
  Channel b;
  Channel c;
  constexpr std::uint64_t kBytes = 100;
  const RouteUse earlier{&a, &b, 1000, 2000, kBytes};
  const auto first = ticket();
  struct Case {
    const char* what;
    RouteUse next;
    bool allowed;
  };
  for (const RouteUse& before : {earlier, RouteUse{nullptr, nullptr, 1000, 2000, kBytes}}) {
    const bool staged = before.first != nullptr;
    sequences_.add(first, {before}, false);
    for (const auto& [what, next, allowed] : std::array<Case, 9>{{
             {"other bytes", {&a, &c, 1100, 2100, kBytes}, true},
             {"the same again", {&a, &b, 1000, 2000, kBytes}, staged},
             {"the same destination", {&a, &b, 1099, 3000, kBytes}, staged},
             {"the same source", {&a, &c, 3000, 2000, kBytes}, true},
             {"the same destination by another channel", {&a, &c, 1099, 3000, kBytes}, false},
             {"writes what was read, by the same channels", {&a, &b, 2099, 3000, kBytes}, staged},
             {"writes what was read", {&c, &b, 1901, 3000, kBytes + 1}, false},
             {"reads what was written", {&a, &b, 3000, 1099, kBytes}, false},
             {"a direct copy, on the stream", {nullptr, nullptr, 1000, 1000, kBytes}, true},
         }}) {
      EXPECT_EQ(sequences_.allows(first->caller(), {next}), allowed)
          << what << (staged ? ", after a staged route" : ", after a direct copy");
    }
  }
  // All of the sequence counts, not the last alone.
  sequences_.add(first, {earlier}, false);
  sequences_.add(sequences_.follow(first->caller()), {{&a, &b, 5000, 6000, kBytes}}, true);
  EXPECT_FALSE(sequences_.allows(first->caller(), {{&a, &b, 3000, 1099, kBytes}}));
  EXPECT_FALSE(sequences_.allows(first->caller(), {{&a, &b, 3000, 5000, kBytes}}));
}

TEST_F(SequenceTest, AWindowInOneGroupEndsSooner) {
  Context context(source(), {{"executor", "stream"}});
  constexpr int kWindow = 16;
  const Payload one = payload({MemoryId::gpu(0), far(), 16 * kMiB});
  if (context.plan({one.request()}).native()) GTEST_SKIP() << "nothing is split";
  context.prepare({one.request(), one.request()});
  const Stream stream = stream_on(0);
  const auto clock = driver_function<double()>(driver(), "polypath_sim_clock_us");
  const auto time_us = [&](auto&& issue) {
    const double start = clock();
    issue();
    synchronize(stream.get());
    EXPECT_TRUE(one.arrived());
    return clock() - start;
  };
  const std::vector<Transfer> window(kWindow, one.transfer(stream.get()));
  const auto alone = [&] {
    for (const Transfer& transfer : window) context.copy_async(transfer);
  };
  const auto together = [&] { context.group_copy_async(window); };
  time_us(alone);
  const double alone_us = time_us(alone);
  const double together_us = time_us(together);
  EXPECT_LT(together_us, 0.97 * alone_us) << "of " << alone_us << " us";
}

}  // namespace
}  // namespace polypath::test
