// When the nodes of a graph run. A launch of n nodes takes 2 + n us of the CPU here, and the k-th
// of them may run 2 + k us after its begin, k from 0; a copy starts after
// 5 us, or 2 us after another; an event takes 3 us.
#include "graph_test.hpp"

namespace polypath::sim::test {
namespace {

class GraphTime : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    d = allocate(1, kCopySize);
    begin = create_event(0);
  }

  /// From the begin of the launch to its end on the stream.
  double run() {
    const CUgraphExec exec = instantiate();
    EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(begin, stream));
    launch(exec, stream);
    return time_of(stream);
  }

  /// From the call that follows the first record to the end of all work on the stream.
  double time_of(CUstream measured) { return elapsed_us(begin, record(measured)) - 0.5; }

  CUdeviceptr d = 0;  ///< on GPU 1
  CUevent begin = nullptr;
};

constexpr double kClose = 1e-2;

TEST_F(GraphTime, NodePaysTheLaunchAndItsStart) {
  add(copy(b, a));
  EXPECT_NEAR(2 + 5 + 10, run(), kClose);
}

TEST_F(GraphTime, EmptyGraph_TakesTheCallAlone) { EXPECT_NEAR(2, run(), kClose); }

TEST_F(GraphTime, ChainOnOneGpu_PaysTheGap) {
  const CUgraphNode first = add(copy(b, a));
  add(copy(b, a), 0, {first});
  EXPECT_NEAR(2 + 5 + 10 + 2 + 10, run(), kClose);
}

TEST_F(GraphTime, ChainOverTwoGpus_PaysAnEvent) {
  const CUgraphNode first = add(copy(b, a));
  add(copy(device(host), b), 1, {first});
  // 3 more until the stream of GPU 0 sees the end on GPU 1.
  EXPECT_NEAR(2 + 5 + 10 + 3 + 5 + 50 + 3, run(), kClose);
}

TEST_F(GraphTime, FirstFollowerPaysGapOthersEvent) {
  const CUgraphNode first = add(copy(b, a));
  add(copy(b, a), 0, {first});
  add(copy(c, a), 0, {first});  // 20 us
  EXPECT_NEAR(17 + 3 + 5 + 20 + 3, run(), kClose);
}

TEST_F(GraphTime, NodeRunsAfterItsFirstDependency) {
  const CUgraphNode slow = add(copy(c, a));   // as a second root on GPU 0 it would pay an event
  const CUgraphNode quick = add(copy(b, a));  // 3 + 5 + 10
  const double slow_ends = 2 + 5 + 20;
  add(copy(b, a), 0, {quick, slow});
  EXPECT_NEAR(slow_ends + 3 + 5 + 10, run(), kClose);
  graph = create_graph();
  const CUgraphNode again = add(copy(c, a));
  const CUgraphNode other = add(copy(b, a));
  add(copy(b, a), 0, {again, other});
  EXPECT_NEAR(slow_ends + 2 + 10, run(), kClose);
}

TEST_F(GraphTime, RootsFollowTheStreamAsCopiesAndEventsDo) {
  add(copy(b, a));
  add(copy(c, a));
  const CUgraphExec exec = instantiate();
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(begin, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(b, a, kCopySize, stream));  // ends at 15
  launch(exec, stream);
  const CUevent end = record(stream);
  EXPECT_NEAR(15 + 3 + 5 + 20 + 3, elapsed_us(begin, end) - 0.5, kClose);
  graph = create_graph();
  add(copy(b, a));
  const CUgraphExec alone = instantiate();
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(begin, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(b, a, kCopySize, stream));
  launch(alone, stream);
  EXPECT_NEAR(15 + 2 + 10, time_of(stream), kClose);
}

TEST_F(GraphTime, StreamContinuesAfterNodeOfItsGpu) {
  add(copy(device(host), b, 4), 1);  // over soon, and of another GPU
  add(copy(b, a));                   // 3 + 5 + 10
  const CUgraphExec exec = instantiate();
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(begin, stream));
  launch(exec, stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(c, a, kCopySize, stream));
  EXPECT_NEAR(18 + 2 + 20, time_of(stream), kClose);
}

TEST_F(GraphTime, StreamWaitsForNodesOfOtherGpus) {
  add(copy(device(host), b), 1);
  add(copy(b, a));
  const CUgraphExec exec = instantiate();
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(begin, stream));
  launch(exec, stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(c, a, kCopySize, stream));
  // The node of GPU 1 begins an event after the launch, but is issued no sooner.
  EXPECT_NEAR(3 + 5 + 50 + 3 + 5 + 20, time_of(stream), kClose);
}

TEST_F(GraphTime, NodesAreIssuedOneAfterAnother) {
  for (int i = 0; i < 29; ++i) add(copy(b, a, 4));
  add(copy(c, a));
  EXPECT_NEAR(2 + 29 + 5 + 20 + 3, run(), kClose);
}

TEST_F(GraphTime, NextLaunchOfGraph_FollowsOnAnyStream) {
  add(copy(b, a));
  const CUgraphExec exec = instantiate();
  const CUstream other = create_stream(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(begin, stream));
  launch(exec, stream);
  launch(exec, other);
  EXPECT_NEAR(17 + 3 + 5 + 10, time_of(other), kClose);
  EXPECT_CUDA(CUDA_SUCCESS, cuEventRecord(begin, stream));
  launch(exec, stream);
  launch(exec, stream);
  // The first of them follows the launch on the other stream by an event.
  EXPECT_NEAR(3 - 0.5 + 5 + 10 + 2 + 10, time_of(stream), kClose);
}

TEST_F(GraphTime, NodesShareLinks) {
  add(copy(b, a));
  add(copy(d, a));
  // The second begins 1 us later; 20 us of the link in all. 3 for the end of the second.
  EXPECT_NEAR(2 + 5 + 20 + 3, run(), kClose);
}

}  // namespace
}  // namespace polypath::sim::test
