// A stream that the test holds back, with transfers queued on it: transfers on other streams
// complete all the same, as they would natively (DESIGN: decision 5).
#include <deque>
#include <thread>

#include "behaviour_test.hpp"
#include "support/gate.hpp"

namespace polypath::test {

namespace {

/// More transfers than a route has streams and rings.
constexpr int kMany = 6;

}  // namespace

void HeldStreamTest::reach_all_gpus() {
  for (int from = 0; from < gpus(); ++from)
    for (int to = 0; to < gpus(); ++to) {
      if (from == to || !node().find_link(MemoryId::gpu(from), MemoryId::gpu(to))) continue;
      const CUcontext peer = context_of(to);
      const CurrentContext current(driver(), context_of(from));
      driver().ctx_enable_peer_access(peer, 0);  // may be on already, or not possible
    }
}

namespace {

TEST_P(HeldStreamTest, HeldStream_HoldsNoOtherStream) {
  std::deque<Payload> held;
  std::deque<Payload> free;
  std::vector<Stream> streams;
  for (int i = 0; i < kMany; ++i) {
    add(held, to_far());
    add(free, to_far());
    streams.push_back(stream_on(i % gpus()));
  }
  const Stream behind = stream_on(0);
  context_->prepare({held.front().request()});
  Gate gate(driver(), context_of(0));
  const Traffic traffic(*context_);

  gate.hold(behind.get(), context_of(0));
  for (const Payload& payload : held) copy(*context_, payload.transfer(behind.get()));
  for (int i = 0; i < kMany; ++i) {
    const CUstream stream = streams[static_cast<std::size_t>(i)].get();
    const CurrentContext current(driver(), context_of(i % gpus()));
    copy(*context_, free[static_cast<std::size_t>(i)].transfer(stream));
    ASSERT_TRUE(completes(stream));
    EXPECT_TRUE(free[static_cast<std::size_t>(i)].arrived());
  }
  EXPECT_FALSE(done(behind.get()));
  for (const Payload& payload : held) EXPECT_TRUE(payload.untouched());

  gate.open();
  ASSERT_TRUE(completes(behind.get()));
  for (const Payload& payload : held) EXPECT_TRUE(payload.arrived());
  EXPECT_EQ(traffic.failed(), 0u);
  EXPECT_EQ(traffic.bytes(), 2u * kMany * bytes_);
  if (!context_->plan({held.front().request()}).native()) {
    EXPECT_GE(traffic.split(), 1u * kMany) << "transfers of one stream may follow each other";
  }
}

TEST_P(HeldStreamTest, ManyHeldStreams_HoldNoOthers) {
  std::deque<Payload> held;
  std::vector<Stream> behind;
  for (int i = 0; i < kMany; ++i) {
    add(held, to_far());
    behind.push_back(stream_on(0));
  }
  const Payload last = payload(to_far());
  const Stream stream = stream_on(0);
  // As wide as it gets.
  context_->prepare(std::vector<Request>(kMany, last.request()));
  {
    Gate gate(driver(), context_of(0));
    const Traffic traffic(*context_);
    for (std::size_t i = 0; i < behind.size(); ++i) {
      gate.hold(behind[i].get(), context_of(0));
      copy(*context_, held[i].transfer(behind[i].get()));
    }
    copy(*context_, last.transfer(stream.get()));
    ASSERT_TRUE(completes(stream.get()));
    EXPECT_TRUE(last.arrived());
    for (const Stream& waiting : behind) EXPECT_FALSE(done(waiting.get()));
    for (const Payload& data : held) EXPECT_TRUE(data.untouched());
    if (!context_->plan({last.request()}).native()) {
      EXPECT_GT(traffic.split(), 1u) << "a route serves several transfers at once";
      EXPECT_GT(traffic.excluded(ExclusionReason::busy), 0u);
    }
    gate.open();
    for (const Stream& waiting : behind) ASSERT_TRUE(completes(waiting.get()));
    for (const Payload& data : held) EXPECT_TRUE(data.arrived());
    EXPECT_EQ(traffic.split() + traffic.native(), 1u + kMany);
  }
  // When no transfer waits, the routes serve again, as planned.
  expect_transfer(*context_, last.shape());
}

TEST_P(HeldStreamTest, HundredsOfHeldTransfers_HoldNoOthers) {
  // As many as a stream takes natively, or nearly: the next would wait for the gate.
  constexpr int kQueued = 800;
  std::deque<Payload> held;
  std::vector<Stream> behind;
  for (int i = 0; i < 3; ++i) {
    add(held, to_far());
    behind.push_back(stream_on(0));
  }
  std::deque<Payload> free;
  for (int i = 0; i < kMany; ++i) add(free, to_far());
  const Stream stream = stream_on(0);
  context_->prepare(std::vector<Request>(kMany, held.front().request()));
  Gate gate(driver(), context_of(0));
  const Traffic traffic(*context_);
  for (std::size_t i = 0; i < behind.size(); ++i) {
    gate.hold(behind[i].get(), context_of(0));
    for (int k = 0; k < kQueued; ++k) copy(*context_, held[i].transfer(behind[i].get()));
  }
  std::thread other([&] {
    const CurrentContext current(driver(), context_of(0));
    for (const Payload& payload : free) {
      context_->copy_async(payload.transfer(stream.get()));
      EXPECT_TRUE(completes(stream.get()));
      EXPECT_TRUE(payload.arrived());
    }
  });
  other.join();
  for (const Payload& payload : held) EXPECT_TRUE(payload.untouched());
  gate.open();
  for (const Stream& waiting : behind) ASSERT_TRUE(completes(waiting.get()));
  for (const Payload& payload : held) EXPECT_TRUE(payload.arrived());
  EXPECT_EQ(traffic.failed(), 0u);
  EXPECT_EQ(traffic.split() + traffic.native(), 3u * kQueued + kMany);
  if (!context_->plan({held.front().request()}).native()) {
    EXPECT_GT(traffic.split(), 3u) << "a held stream may queue several split transfers";
    EXPECT_GT(traffic.excluded(ExclusionReason::busy), 0u);
  }
}

TEST_P(HeldStreamTest, EveryOtherPairGoesOn) {
  // All that share a link with the held transfer.
  std::deque<Payload> others;
  std::vector<Stream> streams;
  for (const MemoryId src : memories())
    for (const MemoryId dst : memories()) {
      if (src != MemoryId::gpu(0) && dst != far_) continue;
      const Payload& data = add(others, {src, dst, bytes_});
      streams.push_back(stream_on(src.is_gpu() ? src.index : 0));
      if (src != dst && !(src.is_host() && dst.is_host())) context_->prepare({data.request()});
    }
  const Payload held = payload(to_far());
  const Stream behind = stream_on(0);
  Gate gate(driver(), context_of(0));

  gate.hold(behind.get(), context_of(0));
  copy(*context_, held.transfer(behind.get()));
  for (std::size_t i = 0; i < others.size(); ++i) {
    copy(*context_, others[i].transfer(streams[i].get()));
    ASSERT_TRUE(completes(streams[i].get()))
        << to_string(others[i].shape().src) << " to " << to_string(others[i].shape().dst);
    EXPECT_TRUE(others[i].arrived());
  }
  EXPECT_TRUE(held.untouched());
  gate.open();
  ASSERT_TRUE(completes(behind.get()));
  EXPECT_TRUE(held.arrived());
}

TEST_P(HeldStreamTest, HeldGroupMember_HoldsNoOtherMember) {
  // Groups whose staged routes want the same links: all leave one memory.
  std::vector<std::vector<Request>> groups;
  for (const MemoryId src : {MemoryId::gpu(0), MemoryId::host(0)})
    for (const int receivers : {2, gpus() - 1}) {
      std::vector<Request> requests;
      for (int gpu = 1; gpu < gpus() && gpu <= receivers; ++gpu)
        requests.push_back({src, MemoryId::gpu(gpu), 32 * kMiB});
      if (requests.size() > 1) groups.push_back(std::move(requests));
    }
  if (groups.empty()) GTEST_SKIP() << "groups need three GPUs";
  for (const std::vector<Request>& requests : groups) {
    SCOPED_TRACE(std::to_string(requests.size()) + " from " + to_string(requests.front().src));
    std::deque<Payload> group;
    std::vector<Stream> streams;
    std::vector<Transfer> transfers;
    for (const auto& [src, dst, bytes, is_pageable] : requests) {
      streams.push_back(stream_on(0));
      transfers.push_back(add(group, {src, dst, bytes}).transfer(streams.back().get()));
    }
    context_->prepare(requests);
    Gate gate(driver(), context_of(0));

    gate.hold(streams.front().get(), context_of(0));
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
}

TEST_P(HeldStreamTest, TransfersKeepTheOrderOfTheirStream) {
  const Payload first = payload(to_far());
  const Payload second = payload(to_far());
  const Payload free = payload(to_far());
  const Stream held = stream_on(0);
  const Stream follower = stream_on(0);
  const Stream other = stream_on(0);
  const Event event(driver(), context_of(0), CU_EVENT_DISABLE_TIMING);
  context_->prepare({first.request()});
  Gate gate(driver(), context_of(0));

  gate.hold(held.get(), context_of(0));
  copy(*context_, first.transfer(held.get()));
  POLYPATH_CHECK(driver(), event_record(event.get(), held.get()));
  POLYPATH_CHECK(driver(), stream_wait_event(follower.get(), event.get(), 0));
  copy(*context_, second.transfer(follower.get()));
  copy(*context_, free.transfer(other.get()));
  ASSERT_TRUE(completes(other.get()));
  EXPECT_TRUE(free.arrived());
  EXPECT_FALSE(done(follower.get()));
  EXPECT_TRUE(first.untouched());
  EXPECT_TRUE(second.untouched());

  gate.open();
  ASSERT_TRUE(completes(follower.get()));
  EXPECT_TRUE(first.arrived());
  EXPECT_TRUE(second.arrived());
}

TEST_P(HeldStreamTest, PreparingMeanwhileBlocksNoCaller) {
  std::deque<Payload> others;
  std::vector<Stream> streams;
  for (int i = 0; i < kMany; ++i) {
    add(others, to_far());
    streams.push_back(stream_on(0));
  }
  const Payload held = payload(to_far());
  const Stream behind = stream_on(0);
  Gate gate(driver(), context_of(0));

  gate.hold(behind.get(), context_of(0));
  copy(*context_, held.transfer(behind.get()));  // asks the background thread for the routes
  for (std::size_t i = 0; i < others.size(); ++i) {
    copy(*context_, others[i].transfer(streams[i].get()));
    ASSERT_TRUE(completes(streams[i].get()));
    EXPECT_TRUE(others[i].arrived());
  }
  EXPECT_TRUE(held.untouched());
  gate.open();
  ASSERT_TRUE(completes(behind.get()));
  EXPECT_TRUE(held.arrived());
}

INSTANTIATE_TEST_SUITE_P(Graph, HeldStreamTest, testing::Values(executor_case("graph")), kCaseName);
INSTANTIATE_TEST_SUITE_P(Stream, HeldStreamTest, testing::Values(executor_case("stream")),
                         kCaseName);

}  // namespace
}  // namespace polypath::test
