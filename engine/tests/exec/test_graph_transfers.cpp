// Transfers that go as graphs: windows of them, buffers and shapes in turn, small caches and none.
#include "graph_transfer_test.hpp"

namespace polypath::test {
namespace {

constexpr int kWindow = 16;

TEST_F(GraphTransferTest, WindowOfOneShape_HasGraphPerStream) {
  make_context(64, {{"staging_size", "1G"}});
  std::deque<Payload> payloads;
  std::vector<Stream> streams;
  for (int i = 0; i < kWindow; ++i) {
    add(payloads, shape());
    streams.push_back(stream_on(0));
  }
  const Plan plan = context_->plan({payloads[0].request()});
  ASSERT_FALSE(plan.native());
  context_->prepare(std::vector<Request>(kWindow, payloads[0].request()));
  for (int round = 0; round < 3; ++round) {
    for (Payload& payload : payloads) payload.renew(random_());
    const GraphUses before = uses();
    const Traffic traffic(*context_);
    Gate gate(driver(), context_of(0));
    for (int i = 0; i < kWindow; ++i) {
      const auto index = static_cast<std::size_t>(i);
      gate.hold(streams[index].get(), context_of(0));
      copy(*context_, payloads[index].transfer(streams[index].get()));
    }
    for (const Payload& payload : payloads) EXPECT_TRUE(payload.untouched());
    gate.open();
    for (int i = 0; i < kWindow; ++i) {
      const auto index = static_cast<std::size_t>(i);
      ASSERT_TRUE(completes(streams[index].get()));
      EXPECT_TRUE(payloads[index].arrived());
    }
    EXPECT_EQ(traffic.split(), 1u * kWindow);
    EXPECT_EQ(traffic.native() + traffic.failed() + traffic.excluded(ExclusionReason::busy), 0u);
    EXPECT_EQ(traffic.bytes(), kWindow * plan.bytes());
    const GraphUses after = uses();
    EXPECT_EQ(after.launches - before.launches, 1u * kWindow);
    EXPECT_EQ(after.builds, 1u * kWindow) << "round " << round;
    // The rings come back in the same order, so each stream finds its own graph.
    EXPECT_EQ(after.hits, 1u * kWindow * static_cast<unsigned>(round));
  }
}

TEST_F(GraphTransferTest, WindowBeyondStagingMemory_Arrives) {
  constexpr int kAtOnce = 8;
  make_context(64);
  std::deque<Payload> payloads;
  std::vector<Stream> streams;
  for (int i = 0; i < kAtOnce; ++i) {
    add(payloads, {MemoryId::gpu(0), MemoryId::gpu(1), 64 * kMiB + 1});
    streams.push_back(stream_on(0));
  }
  context_->prepare(std::vector<Request>(kAtOnce, payloads[0].request()));
  const Traffic traffic(*context_);
  for (std::size_t i = 0; i < payloads.size(); ++i)
    copy(*context_, payloads[i].transfer(streams[i].get()));
  EXPECT_FALSE(done(streams[kAtOnce - 4].get()))
      << "more were to be under way than rings there are";
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    ASSERT_TRUE(completes(streams[i].get()));
    EXPECT_TRUE(payloads[i].arrived());
  }
  EXPECT_EQ(traffic.split(), 1u * kAtOnce);
  EXPECT_EQ(uses().launches, 1u * kAtOnce);
}

TEST_F(GraphTransferTest, SameStream_LaunchesItsGraphAgain) {
  make_context(64);
  const Payload data = payload(shape());
  const Stream stream = stream_on(0);
  context_->prepare({data.request()});
  const Traffic traffic(*context_);
  // Not waited for in between.
  for (int i = 0; i < 5; ++i) copy(*context_, data.transfer(stream.get()));
  ASSERT_TRUE(completes(stream.get()));
  EXPECT_TRUE(data.arrived());
  EXPECT_EQ(traffic.split(), 5u);
  EXPECT_EQ(uses(), (GraphUses{.launches = 5, .hits = 4, .builds = 1, .cached = 1}));
}

TEST_F(GraphTransferTest, ManyBuffers_BuildWhileRoomThenPatch) {
  constexpr std::size_t kPairs = 64;
  constexpr std::size_t kAtOnce = 4;
  std::deque<Payload> payloads;
  for (std::size_t i = 0; i < kPairs; ++i) add(payloads, shape());
  const Stream stream = stream_on(0);
  for (const std::size_t room : {kPairs, kAtOnce}) {
    SCOPED_TRACE("room for " + std::to_string(room));
    make_context(static_cast<int>(room));
    context_->prepare({payloads[0].request()});
    const Traffic traffic(*context_);
    for (int round = 0; round < 2; ++round) {
      for (std::size_t i = 0; i < kPairs; ++i) {
        copy(*context_, payloads[i].transfer(stream.get()));
        if (i % kAtOnce == kAtOnce - 1) {
          ASSERT_TRUE(completes(stream.get()));
        }
      }
      for (Payload& payload : payloads) {
        EXPECT_TRUE(payload.arrived());
        payload.renew(random_());
      }
    }
    EXPECT_EQ(traffic.split(), 2 * kPairs);
    const GraphUses now = uses();
    EXPECT_EQ(now.launches, 2 * kPairs);
    EXPECT_EQ(now.builds, room);
    EXPECT_EQ(now.hits, room == kPairs ? kPairs : 0u);
    EXPECT_EQ(now.patches, 2 * kPairs - now.builds - now.hits);
    EXPECT_EQ(now.evictions + now.busy + now.failed, 0u);
  }
}

TEST_F(GraphTransferTest, WithoutACacheGraphsComeAndGo) {
  make_context(0);
  std::deque<Payload> payloads;
  for (int i = 0; i < 3; ++i) add(payloads, shape(i));
  const Stream stream = stream_on(0);
  context_->prepare({payloads[0].request()});
  for (int round = 0; round < 3; ++round)
    for (Payload& payload : payloads) {
      payload.renew(random_());
      expect_split(payload, stream.get());
      EXPECT_EQ(live_objects(driver()).graph_execs, 1u);
    }
  EXPECT_EQ(uses(), (GraphUses{.launches = 9, .builds = 9}));
}

TEST_F(GraphTransferTest, SmallCachesServeShapesInTurn) {
  constexpr std::uint64_t kShapes = 5;
  constexpr std::uint64_t kRounds = 3;
  std::deque<Payload> payloads;
  for (std::uint64_t i = 0; i < kShapes; ++i) add(payloads, shape(static_cast<int>(i)));
  const Stream stream = stream_on(0);
  for (const std::uint64_t capacity : {1, 4, 5}) {
    SCOPED_TRACE("capacity " + std::to_string(capacity));
    make_context(static_cast<int>(capacity));
    context_->prepare({payloads[0].request()});
    for (std::uint64_t round = 0; round < kRounds; ++round)
      for (Payload& payload : payloads) {
        payload.renew(random_());
        expect_split(payload, stream.get());
        EXPECT_LE(live_objects(driver()).graph_execs, capacity);
      }
    // The next in turn is always the one that left longest ago.
    const std::uint64_t launches = kShapes * kRounds;
    const std::uint64_t builds = capacity < kShapes ? launches : kShapes;
    EXPECT_EQ(uses(), (GraphUses{.launches = launches,
                                 .hits = launches - builds,
                                 .builds = builds,
                                 .evictions = builds - capacity,
                                 .cached = capacity}));
  }
}

TEST_F(GraphTransferTest, FullCacheInFlight_UsesStreams) {
  make_context(1, {{"staging_size", "1G"}});
  std::deque<Payload> payloads;
  std::vector<Stream> streams;
  for (int i = 0; i < 3; ++i) {
    add(payloads, shape());
    streams.push_back(stream_on(0));
  }
  context_->prepare(std::vector<Request>(3, payloads[0].request()));
  const Traffic traffic(*context_);
  Gate gate(driver(), context_of(0));
  gate.hold(streams[0].get(), context_of(0));
  for (std::size_t i = 0; i < 3; ++i) copy(*context_, payloads[i].transfer(streams[i].get()));
  for (const std::size_t i : {1, 2}) {
    ASSERT_TRUE(completes(streams[i].get()));
    EXPECT_TRUE(payloads[i].arrived());
  }
  EXPECT_TRUE(payloads[0].untouched());
  gate.open();
  ASSERT_TRUE(completes(streams[0].get()));
  EXPECT_TRUE(payloads[0].arrived());
  EXPECT_EQ(traffic.split(), 3u);
  EXPECT_EQ(traffic.failed() + traffic.native(), 0u);
  EXPECT_EQ(uses(), (GraphUses{.launches = 1, .builds = 1, .busy = 2, .cached = 1}));
}

TEST_F(GraphTransferTest, Group_LaunchesOneGraphPerTransfer) {
  make_context(64);
  const std::vector<Request> requests{{MemoryId::gpu(0), MemoryId::gpu(1), 16 * kMiB + 7},
                                      {MemoryId::gpu(1), MemoryId::gpu(0), 16 * kMiB + 9}};
  std::deque<Payload> payloads;
  for (const auto& [src, dst, bytes, is_pageable] : requests) add(payloads, {src, dst, bytes});
  const Stream stream = stream_on(0);
  const Stream other = stream_on(1);
  const Plan plan = context_->plan(requests);
  for (const TransferPlan& transfer : plan.transfers) ASSERT_FALSE(transfer.native());
  context_->prepare(requests);
  for (const bool shared : {true, false}) {
    SCOPED_TRACE(shared ? "one stream" : "two streams");
    for (Payload& payload : payloads) payload.renew(random_());
    const CUstream second = shared ? stream.get() : other.get();
    const std::vector<Transfer> transfers{payloads[0].transfer(stream.get()),
                                          payloads[1].transfer(second)};
    const Traffic traffic(*context_);
    const std::uint64_t before = uses().launches;
    context_->group_copy_async(transfers);
    ASSERT_TRUE(completes(stream.get()));
    ASSERT_TRUE(completes(second));
    for (const Payload& payload : payloads) EXPECT_TRUE(payload.arrived());
    Plan expected = plan;
    if (shared)
      for (std::size_t i = 0; i < requests.size(); ++i)
        expected.transfers[i] = context_->plan({requests[i]}).transfers.front();
    EXPECT_TRUE(traffic.went_as(expected));
    EXPECT_EQ(uses().launches - before, 2u);
  }
}

TEST_F(GraphTransferTest, MissingGraphFunction_UsesStreams) {
  const auto go_by_streams = [&](auto member) {
    auto table = std::make_shared<CudaDriver>(driver());
    (*table).*member = nullptr;
    source_here_ = source();
    source_here_->driver = table;
    make_context(64);
    const Payload data = payload(shape());
    const Stream stream = stream_on(0);
    context_->prepare({data.request()});
    expect_split(data, stream.get());
    EXPECT_EQ(uses(), GraphUses{});
  };
  go_by_streams(&CudaDriver::graph_create);
  go_by_streams(&CudaDriver::graph_destroy);
  go_by_streams(&CudaDriver::graph_add_memcpy_node);
  go_by_streams(&CudaDriver::graph_instantiate);
  go_by_streams(&CudaDriver::graph_launch);
  go_by_streams(&CudaDriver::graph_exec_destroy);
  go_by_streams(&CudaDriver::graph_exec_memcpy_node_set_params);
}

}  // namespace
}  // namespace polypath::test
