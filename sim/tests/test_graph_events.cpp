// Events of programs in graphs: a graph waits for what was recorded before its launch, and a wait
// after a launch waits for the launch's record.
#include "graph_test.hpp"

namespace polypath::sim::test {
namespace {

class GraphEvents : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    event = create_event(0);
    other = create_stream(0);
    ASSERT_CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  }

  /// The capture's graph, and the nodes that the next one would depend on.
  std::pair<CUgraph, std::vector<CUgraphNode>> captured() const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t number = 0;
    CUgraph captured = nullptr;
    const CUgraphNode* nodes = nullptr;
    const CUgraphEdgeData* edges = nullptr;
    std::size_t count = 0;
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamGetCaptureInfo_v3(stream, &status, &number, &captured, &nodes,
                                                        &edges, &count));
    return {captured, {nodes, nodes + count}};
  }

  CUgraphNode add_record() const {
    const auto [capture, nodes] = captured();
    CUgraphNode node = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS,
                cuGraphAddEventRecordNode(&node, capture, nodes.data(), nodes.size(), event));
    return node;
  }

  CUgraphExec end() {
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamEndCapture(stream, &graph));
    graphs.push_back(graph);
    return instantiate();
  }

  CUevent event = nullptr;
  CUstream other = nullptr;
};

TEST_F(GraphEvents, StreamWaitsForRecordOfLaunch) {
  ASSERT_CUDA(cuMemcpyAsync(b, a, kCopySize, stream));
  add_record();
  const CUgraphExec exec = end();
  for (int turn = 2; turn < 4; ++turn) {
    write(a, pattern(kCopySize, turn));
    launch(exec, stream);
    ASSERT_CUDA(cuStreamWaitEvent(other, event, 0));
    ASSERT_CUDA(cuMemcpyAsync(device(host), b, kCopySize, other));
    ASSERT_CUDA(cuStreamSynchronize(other));
    EXPECT_EQ(pattern(kCopySize, turn), on_host());
  }
}

TEST_F(GraphEvents, LaunchWaitsForEarlierRecord) {
  ASSERT_CUDA(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
  ASSERT_CUDA(cuMemcpyAsync(device(host), b, kCopySize, stream));
  const CUgraphExec exec = end();
  launch(exec, stream);  // nothing was recorded yet
  for (int turn = 2; turn < 4; ++turn) {
    write(a, pattern(kCopySize, turn));
    ASSERT_CUDA(cuStreamSynchronize(stream));
    ASSERT_CUDA(cuMemcpyAsync(b, a, kCopySize, other));
    ASSERT_CUDA(cuEventRecord(event, other));
    launch(exec, stream);
    ASSERT_CUDA(cuStreamSynchronize(stream));
    EXPECT_EQ(pattern(kCopySize, turn), on_host());
  }
}

TEST_F(GraphEvents, RecordCanMoveAfterLaterNode) {
  ASSERT_CUDA(cuMemcpyAsync(c, a, kCopySize, stream));
  const CUgraphNode node = add_record();
  const auto [capture, before] = captured();
  ASSERT_CUDA(cuMemcpyAsync(b, c, kCopySize, stream));
  const std::vector<CUgraphNode> behind = captured().second;
  ASSERT_EQ(1U, behind.size());
  const auto add = [&](CUgraphNode from, CUgraphNode to) {
    return cuGraphAddDependencies_v2(capture, &from, &to, nullptr, 1);
  };
  const auto remove = [&](CUgraphNode from, CUgraphNode to) {
    return cuGraphRemoveDependencies_v2(capture, &from, &to, nullptr, 1);
  };
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuGraphAddDependencies_v2(capture, nullptr, &node, nullptr, 1));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, remove(behind[0], node));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, add(before[0], node));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, add(behind[0], before[0]));  // a cycle
  ASSERT_CUDA(remove(before[0], node));
  ASSERT_CUDA(add(behind[0], node));
  const CUgraphExec exec = end();
  launch(exec, stream);
  ASSERT_CUDA(cuStreamWaitEvent(other, event, 0));
  ASSERT_CUDA(cuMemcpyAsync(device(host), b, kCopySize, other));
  ASSERT_CUDA(cuStreamSynchronize(other));
  EXPECT_EQ(pattern(kCopySize, 1), on_host());
  EXPECT_CUDA(CUDA_SUCCESS, cuEventQuery(event));
}

TEST_F(GraphEvents, OnlyCapturesHaveThem) {
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(other, event, CU_EVENT_WAIT_EXTERNAL));
  ASSERT_CUDA(cuEventRecord(event, stream));  // in the capture
  EXPECT_CUDA(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
  end();
}

}  // namespace
}  // namespace polypath::sim::test
