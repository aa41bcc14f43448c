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
  for (const auto& [src, dst, bytes] : requests) {
    const Payload& one = add(group, {src, dst, bytes, random_() % 100, random_() % 100});
    streams.push_back(stream_on(src.is_gpu() ? src.index : dst.index));
    transfers.push_back(one.transfer(streams.back().get()));
  }
  const Traffic traffic(*context_);
  context_->group_copy_async(transfers);
  for (const Stream& stream : streams) synchronize(stream.get());
  for (const Payload& one : group) EXPECT_TRUE(one.arrived());
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

TEST_P(GroupTest, OneStreamMayCarryTheWholeGroup) {
  std::deque<Payload> group;
  std::vector<Transfer> transfers;
  std::vector<Request> requests;
  const Stream stream = stream_on(0);
  for (const MemoryId dst : memories()) {
    if (dst == MemoryId::gpu(0)) continue;
    const Payload& one = add(group, {MemoryId::gpu(0), dst, 16 * kMiB + 9});
    transfers.push_back(one.transfer(stream.get()));
    requests.push_back(one.request());
  }
  context_->prepare(requests);
  const Traffic traffic(*context_);
  context_->group_copy_async(transfers);
  synchronize(stream.get());
  for (const Payload& one : group) EXPECT_TRUE(one.arrived());
  EXPECT_TRUE(traffic.went_as(context_->plan(requests)));
}

TEST_P(GroupTest, WhatCannotBeSplitGoesNativelyBesideTheRest) {
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

TEST_P(GroupTest, AnEmptyGroupIsDone) {
  const Traffic traffic(*context_);
  context_->group_copy_async({});
  EXPECT_EQ(traffic.split() + traffic.native() + traffic.failed(), 0u);
}

}  // namespace
}  // namespace polypath::test
