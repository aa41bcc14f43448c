// What the cache does with instantiated graphs: which one serves a launch, which one leaves, and
// that a graph in flight is left alone.
#include "graph_cache_test.hpp"
#include "support/gate.hpp"

namespace polypath::test {
namespace {

TEST_F(GraphCacheTest, BuildsThenHitsThenPatches) {
  make_cache(1);
  Message& first = add_message();
  Message& second = add_message();
  const Stream stream = stream_on(0);
  expect_launch(first, stream.get());
  EXPECT_EQ(uses(), (GraphUses{.launches = 1, .builds = 1, .cached = 1}));
  expect_launch(first, stream.get());
  EXPECT_EQ(uses(), (GraphUses{.launches = 2, .hits = 1, .builds = 1, .cached = 1}));
  expect_launch(second, stream.get());
  expect_launch(second, stream.get());
  EXPECT_EQ(uses(), (GraphUses{.launches = 4,
                               .hits = 2,
                               .patches = 1,
                               .patched_nodes = kNodes,
                               .builds = 1,
                               .cached = 1}));
  cache_->reset_counts();
  EXPECT_EQ(uses(), (GraphUses{.cached = 1}));
}

TEST_F(GraphCacheTest, OtherAddresses_GetGraphWhileRoomLasts) {
  make_cache(2);
  Message& first = add_message();
  Message& second = add_message();
  Message& third = add_message();
  const Stream stream = stream_on(0);
  for (int round = 0; round < 10; ++round) {
    expect_launch(first, stream.get());
    expect_launch(second, stream.get());
  }
  EXPECT_EQ(uses(), (GraphUses{.launches = 20, .hits = 18, .builds = 2, .cached = 2}));
  // Without room the one that was used longest ago is given them.
  cache_->reset_counts();
  expect_launch(third, stream.get());
  expect_launch(second, stream.get());
  EXPECT_EQ(
      uses(),
      (GraphUses{.launches = 2, .hits = 1, .patches = 1, .patched_nodes = kNodes, .cached = 2}));
}

TEST_F(GraphCacheTest, SetsOnlyTheNodesWhoseAddressesChange) {
  make_cache(1);
  Message& message = add_message();
  const TestBuffer& other_staging = add_message().staging;
  const Stream stream = stream_on(0);
  expect_launch(message, stream.get());
  message.payload.renew(random_());
  ASSERT_TRUE(launch(request(message, other_staging), stream.get()));
  ASSERT_TRUE(completes(stream.get()));
  EXPECT_TRUE(message.payload.arrived());
  EXPECT_EQ(uses(),
            (GraphUses{.launches = 2, .patches = 1, .patched_nodes = 2, .builds = 1, .cached = 1}));
}

TEST_F(GraphCacheTest, ReusedAddress_SetsEveryNode) {
  make_cache(4);
  Message& message = add_message();
  const Stream stream = stream_on(0);
  expect_launch(message, stream.get());
  for (const bool source : {false, true}) {
    GraphRequest changed = request(message);
    ++(source ? changed.src_buffer : changed.dst_buffer);
    cache_->reset_counts();
    message.payload.renew(random_());
    ASSERT_TRUE(launch(changed, stream.get()));
    ASSERT_TRUE(completes(stream.get()));
    EXPECT_TRUE(message.payload.arrived());
    EXPECT_EQ(uses(),
              (GraphUses{.launches = 1, .patches = 1, .patched_nodes = kNodes, .cached = 1}));
  }
}

TEST_F(GraphCacheTest, ShapesAndLaunchingGpusAreToldApart) {
  make_cache(4);
  Message& message = add_message();
  Message& larger = add_message(kBytes + 2);
  const Stream stream = stream_on(0);
  expect_launch(message, stream.get());
  expect_launch(larger, stream.get());
  GraphRequest elsewhere = request(message);
  elsewhere.gpu = 1;
  message.payload.renew(random_());
  ASSERT_TRUE(launch(elsewhere, stream.get()));
  ASSERT_TRUE(completes(stream.get()));
  EXPECT_TRUE(message.payload.arrived());
  EXPECT_EQ(uses(), (GraphUses{.launches = 3, .builds = 3, .cached = 3}));
}

TEST_F(GraphCacheTest, EvictsLeastRecentlyUsed) {
  make_cache(3);
  const Stream stream = stream_on(0);
  for (std::uint64_t shape = 0; shape < 4; ++shape) add_message(kBytes + 2 * shape);
  const auto built = [&](std::size_t shape) {
    cache_->reset_counts();
    expect_launch(messages_[shape], stream.get());
    const GraphUses now = uses();
    EXPECT_EQ(now.hits + now.builds, 1u);
    return now.builds == 1;
  };
  for (const std::size_t shape : {0, 1, 2}) EXPECT_TRUE(built(shape));
  EXPECT_FALSE(built(0));  // used again: 1 is the oldest
  EXPECT_TRUE(built(3));   // 1 leaves
  EXPECT_EQ(uses().evictions, 1u);
  for (const std::size_t shape : {2, 0, 3}) EXPECT_FALSE(built(shape)) << shape;
  EXPECT_TRUE(built(1));  // 2 leaves
  EXPECT_TRUE(built(2));  // 0 leaves
  for (const std::size_t shape : {3, 1, 2}) EXPECT_FALSE(built(shape)) << shape;
  EXPECT_TRUE(built(0));
  EXPECT_EQ(uses(), (GraphUses{.launches = 1, .builds = 1, .evictions = 1, .cached = 3}));
  EXPECT_EQ(live_objects(driver()).graph_execs, 3u);
}

TEST_F(GraphCacheTest, GraphInFlight_IsNotPatchedOrDestroyed) {
  make_cache(2);
  Message& held = add_message();
  Message& same_shape = add_message();
  Message& again = add_message();
  Message& other_shape = add_message(kBytes + 2);
  Message& third_shape = add_message(kBytes + 4);
  const Stream behind = stream_on(0);
  const Stream also_behind = stream_on(0);
  const Stream stream = stream_on(0);
  Gate gate(driver(), context_of(0));

  gate.hold(behind.get(), context_of(0));
  ASSERT_TRUE(launch(held, behind.get()));
  expect_launch(same_shape, stream.get());
  EXPECT_EQ(uses().builds, 2u) << "the one in flight was not to be had";
  expect_launch(again, stream.get());
  EXPECT_EQ(uses().patches, 1u) << "the idle one";
  // The one in flight was used longest ago.
  gate.hold(also_behind.get(), context_of(0));
  ASSERT_TRUE(launch(other_shape, also_behind.get()));
  EXPECT_EQ(uses().evictions, 1u);
  // Now both are in flight.
  EXPECT_FALSE(launch(third_shape, stream.get()));
  EXPECT_FALSE(launch(again, stream.get()));
  EXPECT_EQ(uses(), (GraphUses{.launches = 4,
                               .patches = 1,
                               .patched_nodes = kNodes,
                               .builds = 3,
                               .evictions = 1,
                               .busy = 2,
                               .cached = 2}));
  EXPECT_TRUE(held.payload.untouched());
  EXPECT_TRUE(other_shape.payload.untouched());

  gate.open();
  ASSERT_TRUE(completes(behind.get()));
  ASSERT_TRUE(completes(also_behind.get()));
  EXPECT_TRUE(held.payload.arrived());
  EXPECT_TRUE(other_shape.payload.arrived());
  expect_launch(third_shape, stream.get());
}

TEST_F(GraphCacheTest, WaitingGraph_IsNotUsedByOtherStream) {
  Message& message = add_message();
  for (const int capacity : {1, 4}) {
    SCOPED_TRACE("capacity " + std::to_string(capacity));
    make_cache(capacity);
    const Stream behind = stream_on(0);
    const Stream other = stream_on(0);
    message.payload.renew(random_());
    Gate gate(driver(), context_of(0));
    gate.hold(behind.get(), context_of(0));
    ASSERT_TRUE(launch(message, behind.get()));
    EXPECT_EQ(launch(message, other.get()), capacity > 1);
    ASSERT_TRUE(completes(other.get()));
    EXPECT_EQ(static_cast<bool>(message.payload.untouched()), capacity == 1);
    EXPECT_EQ(uses(), capacity == 1
                          ? (GraphUses{.launches = 1, .builds = 1, .busy = 1, .cached = 1})
                          : (GraphUses{.launches = 2, .builds = 2, .cached = 2}));
    gate.open();
    ASSERT_TRUE(completes(behind.get()));
    EXPECT_TRUE(message.payload.arrived());
    cache_->reset_counts();
    expect_launch(message, other.get());
    EXPECT_EQ(uses().hits, 1u);
  }
}

TEST_F(GraphCacheTest, HeldStream_LaunchesItsOwnGraphAgain) {
  make_cache(4);
  Message& message = add_message();
  Message& other = add_message();
  const Stream behind = stream_on(0);
  Gate gate(driver(), context_of(0));
  gate.hold(behind.get(), context_of(0));
  ASSERT_TRUE(launch(message, behind.get()));
  ASSERT_TRUE(launch(message, behind.get()));
  EXPECT_EQ(uses(), (GraphUses{.launches = 2, .hits = 1, .builds = 1, .cached = 1}));
  // Other addresses need another graph, since this one is in flight.
  ASSERT_TRUE(launch(other, behind.get()));
  EXPECT_EQ(uses(), (GraphUses{.launches = 3, .hits = 1, .builds = 2, .cached = 2}));
  gate.open();
  ASSERT_TRUE(completes(behind.get()));
  EXPECT_TRUE(message.payload.arrived());
  EXPECT_TRUE(other.payload.arrived());
}

TEST_F(GraphCacheTest, ReusesRunningGraphOnlyWhenFull) {
  Message& large = add_message(64 * kMiB);
  for (const int capacity : {1, 2}) {
    SCOPED_TRACE("capacity " + std::to_string(capacity));
    make_cache(capacity);
    const Stream stream = stream_on(0);
    const Stream other = stream_on(0);
    large.payload.renew(random_());
    ASSERT_TRUE(launch(large, stream.get()));
    ASSERT_TRUE(launch(large, other.get()));
    EXPECT_FALSE(done(stream.get())) << "it was to be running still";
    EXPECT_EQ(uses(),
              capacity == 1
                  ? (GraphUses{.launches = 2, .hits = 1, .builds = 1, .busy = 1, .cached = 1})
                  : (GraphUses{.launches = 2, .builds = 2, .cached = 2}));
    ASSERT_TRUE(completes(stream.get()));
    ASSERT_TRUE(completes(other.get()));
    EXPECT_TRUE(large.payload.arrived());
  }
}

TEST_F(GraphCacheTest, WithoutRoomEachGraphLivesForOneLaunch) {
  make_cache(0);
  Message& message = add_message();
  const Stream stream = stream_on(0);
  for (int i = 0; i < 5; ++i) {
    expect_launch(message, stream.get());
    EXPECT_EQ(live_objects(driver()).graph_execs, 1u) << "the one before was destroyed";
  }
  EXPECT_EQ(uses(), (GraphUses{.launches = 5, .builds = 5}));

  constexpr std::uint64_t kMaxInFlight = 64;
  const Stream behind = stream_on(0);
  Gate gate(driver(), context_of(0));
  gate.hold(behind.get(), context_of(0));
  for (std::uint64_t i = 0; i < kMaxInFlight; ++i) ASSERT_TRUE(launch(message, behind.get()));
  EXPECT_EQ(live_objects(driver()).graph_execs, kMaxInFlight);
  EXPECT_FALSE(launch(message, behind.get())) << "what is in flight has a limit";
  EXPECT_EQ(uses(),
            (GraphUses{.launches = 5 + kMaxInFlight, .builds = 5 + kMaxInFlight, .busy = 1}));
  gate.open();
  ASSERT_TRUE(completes(behind.get()));
  expect_launch(message, stream.get());
  EXPECT_EQ(live_objects(driver()).graph_execs, 1u);
}

TEST_F(GraphCacheTest, UnpatchableGraph_IsRebuilt) {
  make_cache(1);
  Message& message = add_message();
  const Stream stream = stream_on(0);
  expect_launch(message, stream.get());
  // The driver lets no node change its context.
  GraphRequest changed = request(message);
  changed.places[2].context = context_of(1);
  message.payload.renew(random_());
  ASSERT_TRUE(launch(changed, stream.get()));
  ASSERT_TRUE(completes(stream.get()));
  EXPECT_TRUE(message.payload.arrived());
  EXPECT_EQ(uses(), (GraphUses{.launches = 2, .builds = 2, .cached = 1}));
  EXPECT_EQ(live_objects(driver()).graph_execs, 1u);
}

TEST_F(GraphCacheTest, AcquiredGraph_IsExclusiveUntilReleased) {
  make_cache(4);
  Message& message = add_message();
  const Stream stream = stream_on(0);
  CachedGraph* const first = acquire(message, stream.get());
  CachedGraph* const second = acquire(message, stream.get());
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);
  cache_->release(*first);
  EXPECT_EQ(acquire(message, stream.get()), first) << "never launched, so it is idle";
  EXPECT_EQ(uses(), (GraphUses{.hits = 1, .builds = 2, .cached = 2}));
  cache_->give_up(*second);
  EXPECT_EQ(live_objects(driver()).graph_execs, 1u);
  cache_->release(*first);
  expect_launch(message, stream.get());

  make_cache(0);
  cache_->release(*acquire(message, stream.get()));
  EXPECT_EQ(live_objects(driver()).graph_execs, 0u);
}

TEST_F(GraphCacheTest, LostGraph_IsKeptAndNotReused) {
  make_cache(1);
  Message& message = add_message();
  const Stream stream = stream_on(0);
  CachedGraph* const lost = acquire(message, stream.get());
  ASSERT_NE(lost, nullptr);
  lost->graph->launch(stream.get());
  cache_->lose(*lost);
  ASSERT_TRUE(completes(stream.get()));
  EXPECT_TRUE(message.payload.arrived());
  for (int i = 0; i < 2; ++i) expect_launch(message, stream.get());
  EXPECT_EQ(uses(), (GraphUses{.launches = 3, .hits = 1, .builds = 2, .cached = 1}));
  EXPECT_EQ(live_objects(driver()).graph_execs, 2u);
}

}  // namespace
}  // namespace polypath::test
