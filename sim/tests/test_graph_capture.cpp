// Graphs put together and launched while streams capture, and graphs that are captured.
#include <array>

#include "graph_test.hpp"

namespace polypath::sim::test {
namespace {

class GraphCapture : public GraphTest {
 protected:
  void begin(CUstream on, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamBeginCapture(on, mode));
  }
  CUresult end(CUstream on) {
    CUgraph captured = nullptr;
    const CUresult result = cuStreamEndCapture(on, &captured);
    if (result == CUDA_SUCCESS) graphs.push_back(captured);
    return result;
  }
};

TEST_F(GraphCapture, CapturedFill_CannotBeInstantiated) {
  begin(stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD8Async(b, 1, kCopySize, stream));
  EXPECT_CUDA(CUDA_SUCCESS, end(stream));
  std::array<CUgraphNode, 2> nodes{};
  std::size_t count = nodes.size();
  EXPECT_CUDA(CUDA_SUCCESS, cuGraphGetNodes(graphs.back(), nodes.data(), &count));
  EXPECT_EQ(1U, count);
  EXPECT_NE(nullptr, nodes[0]);
  CUgraphExec exec = nullptr;
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags(&exec, graphs.back(), 0));
}

TEST_F(GraphCapture, GraphCalls_AreAllowedDuringCapture) {
  const CUgraphNode node = add(copy(b, a));
  const CUgraphExec exec = instantiate();
  begin(create_stream(0), CU_STREAM_CAPTURE_MODE_GLOBAL);
  add(copy(c, a));
  EXPECT_CUDA(CUDA_SUCCESS, set(exec, node, copy(b, a)));
  launch(exec, stream);
  create_graph();
}

TEST_F(GraphCapture, InstantiatingDisturbsIt) {
  const CUstream captured = create_stream(0);
  begin(captured);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_CUDA(cuThreadExchangeStreamCaptureMode(&mode));
  instantiate();
  ASSERT_CUDA(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_CUDA(CUDA_SUCCESS, end(captured));
  begin(captured);
  CUgraphExec exec = nullptr;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end(captured));
}

TEST_F(GraphCapture, LaunchOnCapturingStream_IsRefused) {
  add(copy(b, a));
  const CUgraphExec exec = instantiate();
  begin(stream);
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuGraphLaunch(exec, stream));
  EXPECT_CUDA(CUDA_SUCCESS, end(stream));
  EXPECT_EQ(0U, polypath_sim_graph_nodes(graphs.back()));
  EXPECT_EQ(0U, polypath_sim_copies());
}

TEST_F(GraphCapture, LaunchOnDefaultStream_IsRefused) {
  add(copy(b, a));
  const CUgraphExec exec = instantiate();
  begin(create_stream(0, CU_STREAM_DEFAULT));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuGraphLaunch(exec, nullptr));
  EXPECT_EQ(0U, polypath_sim_copies());
}

}  // namespace
}  // namespace polypath::sim::test
