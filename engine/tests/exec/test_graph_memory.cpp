// The driver has no memory for another graph, or does not take it: graphs leave, the cache stays as
// small as memory asks for, and there is no graph to be had for a while.
#include "graph_cache_test.hpp"
#include "support/failing_instantiation.hpp"
#include "support/gate.hpp"

namespace polypath::test {
namespace {

class GraphMemoryTest : public GraphCacheTest {
 protected:
  void SetUp() override {
    GraphCacheTest::SetUp();
    if (IsSkipped()) return;
    failing_.emplace(driver());
    cache_driver_ = failing_->driver();
    stream_.emplace(stream_on(0));
    for (std::uint64_t shape = 0; shape < 5; ++shape) add_message(kBytes + 2 * shape);
  }
  void fill_with(std::size_t shapes) {
    for (std::size_t shape = 0; shape < shapes; ++shape)
      expect_launch(messages_[shape], stream_->get());
  }

  std::optional<FailingInstantiation> failing_;
  std::optional<Stream> stream_;
};

TEST_F(GraphMemoryTest, OthersLeaveUntilItFits) {
  make_cache(8);
  fill_with(3);
  cache_->reset_counts();
  failing_->fail(2, CUDA_ERROR_OUT_OF_MEMORY);
  expect_launch(messages_[3], stream_->get());
  EXPECT_EQ(uses(), (GraphUses{.launches = 1, .builds = 1, .evictions = 2, .cached = 2}));
  // The graphs used last are still cached.
  expect_launch(messages_[2], stream_->get());
  expect_launch(messages_[3], stream_->get());
  EXPECT_EQ(uses().hits, 2u);
  // It does not try to grow again.
  expect_launch(messages_[4], stream_->get());
  EXPECT_EQ(uses(),
            (GraphUses{.launches = 4, .hits = 2, .builds = 2, .evictions = 3, .cached = 2}));
  EXPECT_EQ(live_objects(driver()).graph_execs, 2u);
}

TEST_F(GraphMemoryTest, GraphInFlight_IsNotEvicted) {
  make_cache(8);
  Gate gate(driver(), context_of(0));
  const Stream behind = stream_on(0);
  gate.hold(behind.get(), context_of(0));
  ASSERT_TRUE(launch(messages_[0], behind.get()));
  failing_->fail(1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(launch(messages_[1], stream_->get()));
  EXPECT_EQ(uses(), (GraphUses{.launches = 1, .builds = 1, .failed = 1, .cached = 1}));
  gate.open();
  ASSERT_TRUE(completes(behind.get()));
  EXPECT_TRUE(messages_[0].payload.arrived());
  // Building is what pauses: a graph that is there serves.
  expect_launch(messages_[0], stream_->get());
  EXPECT_EQ(uses().hits, 1u);
}

TEST_F(GraphMemoryTest, AfterAPauseThereAreGraphsAgain) {
  make_cache(8);
  fill_with(2);
  cache_->reset_counts();
  failing_->fail(3, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(launch(messages_[2], stream_->get()));
  EXPECT_EQ(uses(), (GraphUses{.evictions = 2, .failed = 1}));
  const int asked = failing_->calls();
  constexpr std::uint64_t kMaxRefusals = 1000;
  std::uint64_t refused = 0;
  while (refused < kMaxRefusals && !launch(messages_[2], stream_->get())) {
    ASSERT_EQ(failing_->calls(), asked) << "the driver is left alone";
    ++refused;
  }
  ASSERT_TRUE(completes(stream_->get()));
  EXPECT_TRUE(messages_[2].payload.arrived());
  EXPECT_GT(refused, 10u);
  EXPECT_LT(refused, kMaxRefusals);
  EXPECT_EQ(
      uses(),
      (GraphUses{.launches = 1, .builds = 1, .evictions = 2, .failed = 1 + refused, .cached = 1}));
}

TEST_F(GraphMemoryTest, RefusedShape_IsNotRetried) {
  make_cache(8);
  failing_->fail(1, CUDA_ERROR_INVALID_VALUE);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(launch(messages_[0], stream_->get()));
  EXPECT_EQ(failing_->calls(), 1);
  EXPECT_EQ(uses(), (GraphUses{.failed = 3}));
  expect_launch(messages_[1], stream_->get());
  EXPECT_EQ(uses(), (GraphUses{.launches = 1, .builds = 1, .failed = 3, .cached = 1}));
}

TEST_F(GraphMemoryTest, AnyOtherFailureIsNotForEver) {
  make_cache(8);
  failing_->fail(1, CUDA_ERROR_UNKNOWN);
  EXPECT_FALSE(launch(messages_[0], stream_->get()));
  std::uint64_t refused = 1;
  while (refused < 1000 && !launch(messages_[0], stream_->get())) ++refused;
  ASSERT_TRUE(completes(stream_->get()));
  EXPECT_TRUE(messages_[0].payload.arrived());
  EXPECT_EQ(uses(), (GraphUses{.launches = 1, .builds = 1, .failed = refused, .cached = 1}));
}

TEST_F(GraphMemoryTest, ShrunkenCache_GrowsAgain) {
  make_cache(3);
  fill_with(2);
  failing_->fail(1, CUDA_ERROR_OUT_OF_MEMORY);
  expect_launch(messages_[2], stream_->get());
  EXPECT_EQ(uses().cached, 2u);
  // Three shapes in turn, so that each is built anew as long as two fit.
  for (std::size_t i = 0; i < 3000 && uses().cached < 3; ++i)
    expect_launch(messages_[i % 3], stream_->get());
  EXPECT_EQ(uses().cached, 3u);
}

TEST_F(GraphMemoryTest, WithoutACacheAsWell) {
  make_cache(0);
  failing_->fail(1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(launch(messages_[0], stream_->get()));
  EXPECT_EQ(uses(), (GraphUses{.failed = 1}));
}

}  // namespace
}  // namespace polypath::test
