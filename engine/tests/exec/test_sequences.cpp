// Transfers that follow each other on one stream: which of them may start with the fork of the
// first, and what that gains.
#include <array>

#include "exec/stream_executor.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

class SequenceTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    devices_ = std::make_unique<Devices>(source().driver, nullptr, node());
    events_ = std::make_unique<EventPool>(source().driver, *devices_);
  }
  std::shared_ptr<TransferState> ticket(unsigned long long stream = 1) {
    return std::make_shared<TransferState>(CallerStream{context_of(0), nullptr, stream},
                                           std::make_shared<PooledEvent>(*events_, 0));
  }

  std::unique_ptr<Devices> devices_;
  std::unique_ptr<EventPool> events_;
  Sequences sequences_;
};

TEST_F(SequenceTest, LaterOnesHaveTheForkOfTheFirst) {
  const auto first = ticket();
  EXPECT_EQ(sequences_.follow(first->caller()), nullptr);
  sequences_.add(first, {}, false, {});
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

TEST_F(SequenceTest, SequenceLengthIsBounded) {
  const auto first = ticket();
  sequences_.add(first, {}, false, {});
  int transfers = 1;
  while (const auto next = sequences_.follow(first->caller())) {
    sequences_.add(next, {}, true, {});
    ASSERT_LT(++transfers, 1000);
  }
  EXPECT_GT(transfers, 16);
}

// While a transfer is issued, others' sequences may take the place of its own. What the earlier
// ones touch is forgotten then, so nothing may start with their fork any more.
TEST_F(SequenceTest, ForgottenSequence_IsNotResumed) {
  const auto first = ticket();
  sequences_.add(first, {}, false, {});
  const auto second = sequences_.follow(first->caller());
  ASSERT_NE(second, nullptr);
  for (unsigned long long other = 2; other < 1000; ++other) {
    sequences_.add(ticket(other), {}, false, {});
  }
  ASSERT_EQ(sequences_.follow(first->caller()), nullptr) << "there is room for all";
  sequences_.add(second, {}, true, {});
  EXPECT_EQ(sequences_.follow(first->caller()), nullptr);

  const auto anew = ticket();
  sequences_.add(anew, {}, false, {});
  sequences_.add(second, {}, true, {});
  EXPECT_EQ(sequences_.follow(first->caller()), nullptr) << "its own fork is another";
}

TEST_F(SequenceTest, OverlappingBytes_NeedTheirOwnFork) {
  Channel a;
  Channel b;
  Channel c;
  constexpr std::uint64_t kTouched = 100;
  const RouteAccess earlier{&a, &b, 1000, 2000, kTouched};
  const auto first = ticket();
  struct Case {
    const char* what;
    RouteAccess next;
    bool allowed;
  };
  for (const RouteAccess& before : {earlier, RouteAccess{nullptr, nullptr, 1000, 2000, kTouched}}) {
    const bool staged = before.first != nullptr;
    sequences_.add(first, {before}, false, {});
    for (const auto& [what, next, allowed] : std::array<Case, 9>{{
             {"other bytes", {&a, &c, 1100, 2100, kTouched}, true},
             {"the same again", {&a, &b, 1000, 2000, kTouched}, staged},
             {"the same destination", {&a, &b, 1099, 3000, kTouched}, staged},
             {"the same source", {&a, &c, 3000, 2000, kTouched}, true},
             {"the same destination by another channel", {&a, &c, 1099, 3000, kTouched}, false},
             {"writes what was read, by the same channels", {&a, &b, 2099, 3000, kTouched}, staged},
             {"writes what was read", {&c, &b, 1901, 3000, kTouched + 1}, false},
             {"reads what was written", {&a, &b, 3000, 1099, kTouched}, false},
             {"a direct copy, on the stream", {nullptr, nullptr, 1000, 1000, kTouched}, true},
         }}) {
      EXPECT_EQ(sequences_.allows(first->caller(), {next}), allowed)
          << what << (staged ? ", after a staged route" : ", after a direct copy");
    }
  }
  // All of the sequence counts, not the last alone.
  sequences_.add(first, {earlier}, false, {});
  sequences_.add(sequences_.follow(first->caller()), {{&a, &b, 5000, 6000, kTouched}}, true, {});
  EXPECT_FALSE(sequences_.allows(first->caller(), {{&a, &b, 3000, 1099, kTouched}}));
  EXPECT_FALSE(sequences_.allows(first->caller(), {{&a, &b, 3000, 5000, kTouched}}));
}

TEST_F(SequenceTest, StagedLegsDoNotWaitForTheTransferBefore) {
  // Half of each message by another GPU: alone such a transfer ends a chunk later than its direct
  // copy.
  const auto routes = find_routes(node(), MemoryId::gpu(0), far(), {});
  if (gpus() < 3 || routes.size() < 2) GTEST_SKIP() << "needs three GPUs";
  constexpr int kTransfers = 16;
  constexpr int kChunks = 4;
  constexpr std::uint64_t kHalf = 16 * kMiB;
  Plan plan;
  TransferPlan& transfer = plan.transfers.emplace_back();
  transfer.request = {MemoryId::gpu(0), far(), 2 * kHalf};
  transfer.routes.resize(2);
  for (std::size_t r = 0; r < 2; ++r) {
    transfer.routes[r].route = routes[r];
    transfer.routes[r].offset = r * kHalf;
    transfer.routes[r].bytes = kHalf;
    transfer.routes[r].chunks = r == 0 ? 1 : kChunks;
    transfer.routes[r].chunk_bytes = r == 0 ? kHalf : kHalf / kChunks;
  }
  ASSERT_FALSE(plan.native());
  RouteResources resources(source().driver, node(), *devices_, 256 * kMiB);
  StreamExecutor executor(source().driver, resources);
  devices_->enable_peer_access(0, 1);
  resources.prepare(routes[1], 2);
  const GroupSchedule schedule = make_schedule(plan, resources.ring_limits());
  Payload data = payload({MemoryId::gpu(0), far(), 2 * kHalf});
  const Stream stream = stream_on(0);
  const Transfer addresses = data.transfer(stream.get());
  BoundTransfer bound;
  bound.dst = addresses.dst;
  bound.src = addresses.src;
  bound.caller = {context_of(0), stream.get(), 1};
  bound.ends.resize(2, {addresses.dst, addresses.src});
  const auto clock = driver_function<double()>(driver(), "polypath_sim_clock_us");
  const auto window_us = [&](bool follows) {
    data.renew(random_());
    const double start = clock();
    for (int i = 0; i < kTransfers; ++i) {
      bound.follows = follows && i > 0;
      EXPECT_TRUE(executor.run(schedule, {bound}).done());
    }
    synchronize(stream.get());
    const double us = clock() - start;
    EXPECT_TRUE(data.arrived());
    return us;
  };
  const double alone = window_us(false);
  const double together = window_us(true);
  // A chunk's time a transfer, but for the last.
  EXPECT_LT(together, alone * (1 - 0.5 / (kChunks + 1)));
}

}  // namespace
}  // namespace polypath::test
