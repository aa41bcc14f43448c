// The same for transfers that go as graphs: the native copy, by streams, as a graph all the same,
// or an error that names the call; and nothing that is in flight is changed or destroyed.
#include <algorithm>

#include "failure_test.hpp"
#include "support/failing_instantiation.hpp"
#include "support/graph_uses.hpp"

namespace polypath::test {
namespace {

using testing::Contains;
using testing::IsEmpty;

class GraphFailureTest : public FailureTest {
 protected:
  void SetUp() override {
    FailureTest::SetUp();
    if (IsSkipped()) return;
    arguments_.emplace_back("executor", "graph");
    bytes_ = bytes_for(MemoryId::gpu(0), far());
    const auto context = make_context();
    if (context->plan({to_far()}).native()) GTEST_SKIP() << "nothing is split";
  }
  [[nodiscard]] Request to_far(std::uint64_t more = 0) const {
    return {MemoryId::gpu(0), far(), bytes_ + more};
  }

  [[nodiscard]] std::size_t split_among(const std::vector<Request>& requests) const {
    const Plan plan = make_context()->plan(requests);
    return static_cast<std::size_t>(std::ranges::count_if(
        plan.transfers, [](const TransferPlan& transfer) { return !transfer.native(); }));
  }

  std::uint64_t bytes_ = 0;
};

TEST_F(GraphFailureTest, EachCallOfBuilding) {
  fail_each_call({to_far()});
  EXPECT_EQ(uses_of(unfailed_), (GraphUses{.launches = 1, .builds = 1, .cached = 1}));
  for (const char* call : {"cuGraphCreate", "cuGraphAddMemcpyNode", "cuGraphInstantiateWithFlags"})
    EXPECT_THAT(endings_[Ending::streams], Contains(call));
  for (const char* call : {"cuGraphLaunch", "cuPointerGetAttributes"})
    EXPECT_THAT(endings_[Ending::native], Contains(call));
  // The copies are under way, though it is not known when they end.
  EXPECT_THAT(endings_[Ending::graph], Contains("cuEventRecord"));
  EXPECT_THAT(endings_[Ending::error], IsEmpty());
}

TEST_F(GraphFailureTest, EachCallOfLaunchingAgain) {
  fail_each_call({to_far()}, {to_far()}, true);
  EXPECT_EQ(uses_of(unfailed_), (GraphUses{.launches = 2, .hits = 1, .builds = 1, .cached = 1}));
  EXPECT_THAT(endings_[Ending::native], Contains("cuGraphLaunch"));
  EXPECT_THAT(endings_[Ending::graph], Contains("cuEventRecord"));
  EXPECT_THAT(endings_[Ending::error], IsEmpty());
}

TEST_F(GraphFailureTest, EachCallOfPatching) {
  arguments_.emplace_back("graph_cache_size", "1");
  fail_each_call({to_far()}, {to_far()});
  EXPECT_EQ(unfailed_.patches, 1u);
  EXPECT_EQ(unfailed_.builds, 1u);
  // What is neither the old nor the new is not launched.
  EXPECT_THAT(endings_[Ending::graph], Contains("cuGraphExecMemcpyNodeSetParams"));
  EXPECT_THAT(endings_[Ending::native], Contains("cuGraphLaunch"));
}

TEST_F(GraphFailureTest, EachCallOfEvicting) {
  arguments_.emplace_back("graph_cache_size", "1");
  fail_each_call({to_far()}, {to_far(4096)});
  EXPECT_EQ(uses_of(unfailed_),
            (GraphUses{.launches = 2, .builds = 2, .evictions = 1, .cached = 1}));
  for (const char* call : {"cuGraphExecDestroy", "cuGraphDestroy"})
    EXPECT_THAT(endings_[Ending::graph], Contains(call));
  EXPECT_THAT(endings_[Ending::streams], Contains("cuGraphInstantiateWithFlags"));
}

TEST_F(GraphFailureTest, EachCallWithoutACache) {
  arguments_.emplace_back("graph_cache_size", "0");
  fail_each_call({to_far()}, {to_far()});
  EXPECT_EQ(uses_of(unfailed_), (GraphUses{.launches = 2, .builds = 2}));
  EXPECT_THAT(endings_[Ending::streams], Contains("cuGraphInstantiateWithFlags"));
}

TEST_F(GraphFailureTest, EachCallOfATransferFromTheHost) {
  const std::uint64_t bytes = bytes_for(MemoryId::host(0), MemoryId::gpu(0));
  const std::vector<Request> requests{{MemoryId::host(0), MemoryId::gpu(0), bytes}};
  if (split_among(requests) == 0) GTEST_SKIP() << "no route adds to the host link";
  fail_each_call(requests);
  EXPECT_EQ(unfailed_.launches, 1u);
}

TEST_F(GraphFailureTest, EachCallOfAGroup) {
  const auto both_ways = [&](std::uint64_t bytes) {
    return std::vector<Request>{{MemoryId::gpu(0), far(), bytes}, {far(), MemoryId::gpu(0), bytes}};
  };
  std::vector<Request> requests = both_ways(bytes_);
  while (split_among(requests) < 2 && requests[0].bytes < 8 * kMiB)
    requests = both_ways(2 * requests[0].bytes);
  if (split_among(requests) < 2) GTEST_SKIP() << "only one at a time is split";
  fail_each_call(requests);
  EXPECT_EQ(unfailed_.launches, 2u);
  // The second graph's launch, when the first is under way: both go natively after it.
  EXPECT_THAT(endings_[Ending::graph], Contains("cuGraphLaunch"));
  EXPECT_THAT(endings_[Ending::error], IsEmpty());
}

TEST_F(GraphFailureTest, UnknownEnd_IsNotReused) {
  const Payload::Shape shape{MemoryId::gpu(0), far(), 16 * kMiB + 1};
  Payload first = payload(shape);
  const Payload second = payload(shape);
  const Stream stream = stream_on(0);
  const Stream other = stream_on(0);
  arguments_.emplace_back("load", "off");  // samples record events of their own
  const auto context = make_context();
  context->prepare({first.request()});
  const auto count_records = [&] {
    faults_->clear();
    copy(*context, first.transfer(stream.get()));
    return faults_->calls_by_symbol().at("cuEventRecord");
  };
  count_records();
  const std::uint64_t records = count_records();
  ASSERT_TRUE(completes(stream.get()));
  first.renew(random_());
  reset_sim_counters(driver());
  // The last one, after the launch.
  faults_->fail("cuEventRecord", records, CUDA_ERROR_UNKNOWN);
  const Traffic traffic(*context);
  EXPECT_NO_THROW(context->copy_async(first.transfer(stream.get())));
  EXPECT_EQ(faults_->last_failed(), "cuEventRecord");
  faults_->clear();
  use_first_gpu();
  // The first is under way: neither its graph nor its staging memory may serve the second.
  copy(*context, second.transfer(other.get()));
  EXPECT_FALSE(done(stream.get()));
  ASSERT_TRUE(completes(stream.get()));
  ASSERT_TRUE(completes(other.get()));
  EXPECT_TRUE(first.arrived());
  EXPECT_TRUE(second.arrived());
  EXPECT_EQ(traffic.failed(), 0u);
  EXPECT_EQ(traffic.split() + traffic.native(), 2u);
  EXPECT_GT(traffic.excluded(ExclusionReason::busy), 0u);
  EXPECT_EQ(graph_misuse(driver()), GraphMisuse{});
}

TEST_F(GraphFailureTest, OutOfMemory_ShrinksCacheThenRecovers) {
  FailingInstantiation failing(driver());
  NodeSource failing_source = source();
  failing_source.driver = failing.driver();
  Context context(failing_source, {{"executor", "graph"}});
  const Stream stream = stream_on(0);
  std::deque<Payload> payloads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const Request request = to_far(i * 4096);
    add(payloads, {request.src, request.dst, request.bytes});
  }
  context.prepare({to_far()});
  const auto expect_split = [&](std::size_t which) {
    Payload& payload = payloads[which];
    payload.renew(random_());
    const Traffic traffic(context);
    copy(context, payload.transfer(stream.get()));
    ASSERT_TRUE(completes(stream.get()));
    EXPECT_TRUE(payload.arrived());
    EXPECT_TRUE(traffic.went_as(context.plan({payload.request()})));
  };
  const auto uses = [&] { return uses_of(context.graph_counts()); };
  for (std::size_t i = 0; i < 3; ++i) expect_split(i);

  failing.fail(2, CUDA_ERROR_OUT_OF_MEMORY);
  expect_split(3);
  EXPECT_EQ(uses(), (GraphUses{.launches = 4, .builds = 4, .evictions = 2, .cached = 2}));
  failing.fail(3, CUDA_ERROR_OUT_OF_MEMORY);
  expect_split(0);  // by streams
  EXPECT_EQ(uses(), (GraphUses{.launches = 4, .builds = 4, .evictions = 4, .failed = 1}));
  for (int i = 0; i < 1000 && uses().launches == 4; ++i) expect_split(1);
  const GraphUses now = uses();
  EXPECT_GT(now.failed, 10u);
  EXPECT_LT(now.failed, 1000u);
  EXPECT_EQ(now.launches, 5u);
  EXPECT_EQ(now.cached, 1u);
}

}  // namespace
}  // namespace polypath::test
