// A stream that the test holds back, with transfers queued on it: transfers on other streams complete all
// the same, as they would natively (DESIGN: decision 5).
#include <deque>

#include "behaviour_test.hpp"
#include "support/gate.hpp"

namespace polypath::test {

void HeldStreamTest::SetUp() {
  BehaviourTest::SetUp();
  if (IsSkipped()) return;
  if (driver().stream_wait_value32 == nullptr) GTEST_SKIP() << "no cuStreamWaitValue32";
  context_ = make_context();
  far_ = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  bytes_ = least_split(*context_, MemoryId::gpu(0), far_).value_or(kMiB) + 5;
  context_->prepare({{MemoryId::gpu(0), far_, bytes_}});
}

namespace {

/// Enough transfers to use up all streams and rings of a route.
constexpr int kMany = 10;

TEST_P(HeldStreamTest, OneHeldStreamHoldsNobodyElse) {
  std::deque<Payload> held;
  std::deque<Payload> free;
  const Stream behind = stream_on(0);
  std::vector<Stream> streams;
  Gate gate(driver(), context_of(0));
  const Traffic traffic(*context_);

  gate.hold(behind.get(), context_of(0));
  for (int i = 0; i < kMany; ++i) {
    add(held, to_far());
    copy(*context_, held.back().transfer(behind.get()));
  }
  for (int i = 0; i < kMany; ++i) {
    add(free, to_far());
    streams.push_back(stream_on(i % gpus()));
    const CurrentContext current(driver(), context_of(i % gpus()));
    copy(*context_, free.back().transfer(streams.back().get()));
    ASSERT_TRUE(completes(streams.back().get()));
    EXPECT_TRUE(free.back().arrived());
  }
  EXPECT_FALSE(done(behind.get()));
  for (const Payload& one : held) EXPECT_TRUE(one.untouched());

  gate.open();
  ASSERT_TRUE(completes(behind.get()));
  for (const Payload& one : held) EXPECT_TRUE(one.arrived());
  EXPECT_EQ(traffic.failed(), 0u);
  EXPECT_EQ(traffic.bytes(), 2u * kMany * bytes_);
  if (!context_->plan({held.front().request()}).native()) {
    EXPECT_GE(traffic.split(), 1u * kMany) << "transfers of one stream may follow each other";
  }
}

TEST_P(HeldStreamTest, ManyHeldStreamsHoldNobodyElse) {
  std::deque<Payload> held;
  std::vector<Stream> behind;
  const Payload last = payload(to_far());
  const Stream stream = stream_on(0);
  Gate gate(driver(), context_of(0));
  const Traffic traffic(*context_);

  for (int i = 0; i < kMany; ++i) {
    add(held, to_far());
    behind.push_back(stream_on(0));
    gate.hold(behind.back().get(), context_of(0));
    copy(*context_, held.back().transfer(behind.back().get()));
    context_->wait_prepared();  // a busy route asks for another stream and ring
  }
  copy(*context_, last.transfer(stream.get()));
  ASSERT_TRUE(completes(stream.get()));
  EXPECT_TRUE(last.arrived());
  for (const Stream& one : behind) EXPECT_FALSE(done(one.get()));
  for (const Payload& one : held) EXPECT_TRUE(one.untouched());
  if (!context_->plan({last.request()}).native()) {
    EXPECT_GT(traffic.split(), 1u) << "a route serves several transfers at once";
    EXPECT_GT(traffic.left_out(LeftOutReason::busy), 0u);
  }

  gate.open();
  for (const Stream& one : behind) ASSERT_TRUE(completes(one.get()));
  for (const Payload& one : held) EXPECT_TRUE(one.arrived());
  EXPECT_EQ(traffic.split() + traffic.native(), 1u + kMany);

  // With nobody waiting the routes serve again, as planned.
  expect_transfer(*context_, last.shape());
}

TEST_P(HeldStreamTest, EveryOtherPairGoesOn) {
  for (const MemoryId src : memories())
    for (const MemoryId dst : memories())
      if (src != dst && !(src.is_host() && dst.is_host()))
        context_->prepare({{src, dst, bytes_}});
  const Payload held = payload(to_far());
  const Stream behind = stream_on(0);
  Gate gate(driver(), context_of(0));

  gate.hold(behind.get(), context_of(0));
  copy(*context_, held.transfer(behind.get()));
  for (const MemoryId src : memories())
    for (const MemoryId dst : memories()) {
      const Payload other = payload({src, dst, bytes_});
      const Stream stream = stream_on(src.is_gpu() ? src.index : 0);
      copy(*context_, other.transfer(stream.get()));
      ASSERT_TRUE(completes(stream.get())) << to_string(src) << " to " << to_string(dst);
      EXPECT_TRUE(other.arrived());
    }
  EXPECT_TRUE(held.untouched());
  gate.open();
  ASSERT_TRUE(completes(behind.get()));
  EXPECT_TRUE(held.arrived());
}

TEST_P(HeldStreamTest, AGroupMemberOnAHeldStreamHoldsNoOther) {
  // All leave GPU 0, so that their staged routes want the same links.
  std::deque<Payload> group;
  std::vector<Stream> streams;
  std::vector<Request> requests;
  for (const MemoryId dst : memories()) {
    if (dst == MemoryId::gpu(0)) continue;
    add(group, {MemoryId::gpu(0), dst, 32 * kMiB});
    streams.push_back(stream_on(0));
    requests.push_back(group.back().request());
  }
  context_->prepare(requests);
  Gate gate(driver(), context_of(0));

  gate.hold(streams.front().get(), context_of(0));
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i < group.size(); ++i)
    transfers.push_back(group[i].transfer(streams[i].get()));
  context_->group_copy_async(transfers);
  for (std::size_t i = 1; i < group.size(); ++i) {
    ASSERT_TRUE(completes(streams[i].get())) << "transfer " << i;
    EXPECT_TRUE(group[i].arrived());
  }
  EXPECT_TRUE(group.front().untouched());
  gate.open();
  ASSERT_TRUE(completes(streams.front().get()));
  EXPECT_TRUE(group.front().arrived());
}

TEST_P(HeldStreamTest, TransfersWaitForWhatTheirOwnStreamWaitsFor) {
  const Payload first = payload(to_far());
  const Payload second = payload(to_far());
  const Stream held = stream_on(0);
  const Stream follower = stream_on(0);
  const Event event(driver(), context_of(0), CU_EVENT_DISABLE_TIMING);
  Gate gate(driver(), context_of(0));

  gate.hold(held.get(), context_of(0));
  copy(*context_, first.transfer(held.get()));
  POLYPATH_CHECK(driver(), event_record(event.get(), held.get()));
  POLYPATH_CHECK(driver(), stream_wait_event(follower.get(), event.get(), 0));
  copy(*context_, second.transfer(follower.get()));
  expect_transfer(*context_, {MemoryId::gpu(0), far_, 1});
  EXPECT_FALSE(done(follower.get()));
  EXPECT_TRUE(first.untouched());
  EXPECT_TRUE(second.untouched());

  gate.open();
  ASSERT_TRUE(completes(follower.get()));
  EXPECT_TRUE(first.arrived());
  EXPECT_TRUE(second.arrived());
}

}  // namespace
}  // namespace polypath::test
