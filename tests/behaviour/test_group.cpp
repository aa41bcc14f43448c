// Transfers that are planned together: both directions of a pair, rings, fans, and mixtures.
#include <deque>

#include "behaviour_test.hpp"

namespace polypath::test {

void GroupTest::SetUp() {
  BehaviourTest::SetUp();
  if (!IsSkipped()) context_ = make_context();
}

void GroupTest::expect_group(const std::vector<Request>& requests) {
  context_->prepare(requests);
  std::deque<Payload> group;
  std::vector<Stream> streams;
  std::vector<Transfer> transfers;
  for (const auto& [src, dst, bytes, is_pageable] : requests) {
    const Payload& payload = add(group, {src, dst, bytes, random_() % 100, random_() % 100});
    streams.push_back(stream_on(src.is_gpu() ? src.index : dst.index));
    transfers.push_back(payload.transfer(streams.back().get()));
  }
  const Traffic traffic(*context_);
  context_->group_copy_async(transfers);
  for (const Stream& stream : streams) synchronize(stream.get());
  for (const Payload& payload : group) EXPECT_TRUE(payload.arrived());
  EXPECT_TRUE(traffic.went_as(context_->plan(requests)));
}

namespace {

TEST_P(GroupTest, BothDirectionsArrive) {
  const MemoryId near = MemoryId::gpu(0);
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  for (const std::uint64_t bytes : {kMiB, 32 * kMiB + 3})
    expect_group({{near, far, bytes}, {far, near, bytes}});
  expect_group({{near, far, 32 * kMiB}, {far, near, 8 * kMiB + 1}});
}

TEST_P(GroupTest, RingsArrive) {
  if (gpus() < 3) GTEST_SKIP() << "a ring needs three GPUs";
  std::vector<Request> forward;
  std::vector<Request> both;
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    const MemoryId here = MemoryId::gpu(gpu);
    const MemoryId next = MemoryId::gpu((gpu + 1) % gpus());
    forward.push_back({here, next, 16 * kMiB + 1});
    both.push_back(forward.back());
    both.push_back({next, here, 16 * kMiB + 1});
  }
  expect_group(forward);
  expect_group(both);
}

TEST_P(GroupTest, FansArrive) {
  std::vector<Request> out;
  std::vector<Request> in;
  for (const MemoryId other : memories()) {
    if (other == MemoryId::gpu(0)) continue;
    out.push_back({MemoryId::gpu(0), other, 8 * kMiB});
    in.push_back({other, MemoryId::gpu(0), 8 * kMiB});
  }
  expect_group(out);
  expect_group(in);
}

TEST_P(GroupTest, SingleStream_CarriesTheWholeGroup) {
  std::deque<Payload> group;
  std::vector<Transfer> transfers;
  std::vector<Request> requests;
  const Stream stream = stream_on(0);
  for (const MemoryId dst : memories()) {
    if (dst == MemoryId::gpu(0)) continue;
    const Payload& payload = add(group, {MemoryId::gpu(0), dst, 16 * kMiB + 9});
    transfers.push_back(payload.transfer(stream.get()));
    requests.push_back(payload.request());
  }
  context_->prepare(requests);
  const Traffic traffic(*context_);
  context_->group_copy_async(transfers);
  synchronize(stream.get());
  for (const Payload& payload : group) EXPECT_TRUE(payload.arrived());
  // One after another, so each is planned alone.
  Plan plan;
  for (const Request& request : requests)
    plan.transfers.push_back(context_->plan({request}).transfers.front());
  EXPECT_TRUE(traffic.went_as(plan));
}

TEST_P(GroupTest, TransfersOfOneStreamGoInTheirOrder) {
  const MemoryId near = MemoryId::gpu(0);
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const MemoryId last = gpus() > 2 ? MemoryId::gpu(2) : near;
  const std::uint64_t bytes = 24 * kMiB + 3;
  context_->prepare({{near, far, bytes}, {near, far, bytes}});
  if (last != near) context_->prepare({{far, last, bytes}});
  TestBuffer near_buffer(driver(), node(), near, bytes);
  TestBuffer other(driver(), node(), near, bytes);
  TestBuffer middle(driver(), node(), far, bytes);
  TestBuffer end(driver(), node(), last, bytes);
  const Stream stream = stream_on(0);
  for (int round = 0; round < 3; ++round) {
    near_buffer.fill(random_());
    const std::uint64_t seed = random_();
    other.fill(seed);
    middle.poison();
    end.poison();
    // Twice to one place, in shares of different sizes, and from there on.
    const std::vector<Transfer> transfers{
        {middle.address(), near_buffer.address(), bytes - kMiB, stream.get()},
        {middle.address(), other.address(), bytes, stream.get()},
        {end.address(), middle.address(), bytes, stream.get()},
        {near_buffer.address(), end.address(), std::uint64_t{last == near ? 100u : 0u},
         stream.get()},
        {middle.address(), near_buffer.address(), bytes / 2, stream.get()}};
    context_->group_copy_async(transfers);
    ASSERT_TRUE(completes(stream.get()));
    EXPECT_EQ(end.first_difference(seed), std::nullopt);
  }
}

TEST_P(GroupTest, WindowOnOneStream_Arrives) {
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  constexpr int kWindow = 40;
  const std::uint64_t bytes = min_split(*context_, MemoryId::gpu(0), far).value_or(kMiB) + 7;
  context_->prepare(std::vector<Request>(2, {MemoryId::gpu(0), far, bytes}));
  const Stream stream = stream_on(0);
  for (const std::size_t buffers : {1u, 3u, 16u}) {
    SCOPED_TRACE(std::to_string(buffers) + " pairs of buffers");
    std::deque<Payload> payloads;
    for (std::size_t i = 0; i < buffers; ++i) add(payloads, {MemoryId::gpu(0), far, bytes});
    std::vector<Transfer> transfers;
    for (std::size_t i = 0; i < kWindow; ++i)
      transfers.push_back(payloads[i % buffers].transfer(stream.get()));
    const Traffic traffic(*context_);
    context_->group_copy_async(transfers);
    ASSERT_TRUE(completes(stream.get()));
    for (const Payload& payload : payloads) EXPECT_TRUE(payload.arrived());
    EXPECT_EQ(traffic.bytes(), kWindow * bytes);
    if (!context_->plan({payloads[0].request()}).native()) {
      EXPECT_GE(traffic.split(), kWindow / 4u);
      EXPECT_EQ(traffic.failed(), 0u);
    }
  }
}

TEST_P(GroupTest, UnsplittableMembers_GoNatively) {
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const Payload large = payload({MemoryId::gpu(0), far, 32 * kMiB});
  const Payload small = payload({MemoryId::gpu(0), far, 100});
  const Payload inside = payload({MemoryId::gpu(0), MemoryId::gpu(0), kMiB});
  context_->prepare({large.request()});
  const Stream stream = stream_on(0);
  const Traffic traffic(*context_);
  const std::vector<Transfer> transfers = {small.transfer(stream.get()),
                                           large.transfer(stream.get()),
                                           {0, 0, 0, stream.get()},
                                           inside.transfer(stream.get())};
  context_->group_copy_async(transfers);
  synchronize(stream.get());
  EXPECT_TRUE(large.arrived());
  EXPECT_TRUE(small.arrived());
  EXPECT_TRUE(inside.arrived());
  EXPECT_EQ(traffic.native(NativeReason::small), 1u);
  EXPECT_EQ(traffic.native(NativeReason::same_memory), 1u);
  EXPECT_EQ(traffic.bytes(), 33 * kMiB + 100);
  EXPECT_EQ(traffic.split(), context_->plan({large.request()}).native() ? 0u : 1u);
}

TEST_P(GroupTest, EmptyGroup_DoesNothing) {
  const Traffic traffic(*context_);
  context_->group_copy_async({});
  EXPECT_EQ(traffic.split() + traffic.native() + traffic.failed(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Graph, GroupTest, testing::Values(executor_case("graph")), kCaseName);
INSTANTIATE_TEST_SUITE_P(Stream, GroupTest, testing::Values(executor_case("stream")), kCaseName);

}  // namespace
}  // namespace polypath::test
