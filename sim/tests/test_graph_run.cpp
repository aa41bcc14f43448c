// Launches of graphs: bytes move, in the order of the dependencies and of the stream.
#include <atomic>

#include "graph_test.hpp"

namespace polypath::sim::test {
namespace {

class GraphRun : public GraphTest {
 protected:
  /// Holds the stream back until *word is 1.
  void hold(CUstream on) {
    if (word == nullptr)
      word = reinterpret_cast<std::atomic<std::uint32_t>*>(allocate_host(sizeof *word));
    word->store(0);
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamWaitValue32(on, device(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  }

  std::atomic<std::uint32_t>* word = nullptr;
};

TEST_F(GraphRun, LaunchMovesBytes) {
  add(copy(b, a));
  const CUgraphExec exec = instantiate();
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<std::uint8_t>(kCopySize, 0xC3), peek(b, kCopySize));
  launch(exec, stream);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  EXPECT_EQ(std::vector<std::uint8_t>(kCopySize, 0xC3), peek(b, kCopySize));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(pattern(kCopySize, 1), peek(b, kCopySize));
  EXPECT_EQ(1U, polypath_sim_copies());
  EXPECT_EQ(kCopySize, polypath_sim_link_bytes("gpu0", "gpu1"));
  EXPECT_EQ(0U, polypath_sim_bounced_copies());
}

TEST_F(GraphRun, DependencyIsKept) {
  // The second node starts sooner than the first ends.
  const CUgraphNode first = add(copy(device(host), a));
  add(copy(b, device(host)), 1, {first});
  launch(instantiate(), stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(pattern(kCopySize, 1), peek(b, kCopySize));
}

TEST_F(GraphRun, AllDependenciesAreKept) {
  write(b, pattern(kCopySize, 2));
  const CUdeviceptr both = allocate(2, 2 * kCopySize);
  const CUdeviceptr result = allocate(0, 2 * kCopySize);
  const CUgraphNode quick = add(copy(both, a));
  const CUgraphNode slow = add(copy(both + kCopySize, b), 1);
  add(copy(result, both, 2 * kCopySize), 0, {quick, slow});
  launch(instantiate(), stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(1U, polypath_sim_bounced_copies());  // GPU 1 does not reach GPU 2: the slow one
  EXPECT_EQ(pattern(kCopySize, 1), peek(result, kCopySize));
  EXPECT_EQ(pattern(kCopySize, 2), peek(result + kCopySize, kCopySize));
}

TEST_F(GraphRun, UnorderedNode_DoesNotWait) {
  add(copy(device(host), a));
  add(copy(b, a));
  launch(instantiate(), stream);
  polypath_sim_advance_us(30);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  EXPECT_EQ(pattern(kCopySize, 1), peek(b, kCopySize));
}

TEST_F(GraphRun, LaunchIsOneItemOfTheStream) {
  write(b, pattern(kCopySize, 2));
  const CUdeviceptr later = allocate(0, kCopySize);
  add(copy(b, a));
  add(copy(device(host), a));
  const CUgraphExec exec = instantiate();
  // Before it: a is overwritten. After it: what both nodes wrote is read.
  const CUdeviceptr fresh = allocate(0, kCopySize);
  write(fresh, pattern(kCopySize, 3));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(a, fresh, kCopySize, stream));
  launch(exec, stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(later, device(host), kCopySize, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(pattern(kCopySize, 3), peek(b, kCopySize));
  EXPECT_EQ(pattern(kCopySize, 3), peek(later, kCopySize));
}

TEST_F(GraphRun, EmptyGraph_KeepsStreamOrder) {
  const CUgraphExec empty = instantiate();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(b, a, kCopySize, stream));
  launch(empty, stream);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(pattern(kCopySize, 1), peek(b, kCopySize));
}

TEST_F(GraphRun, DefaultStream_OrdersLaunch) {
  const CUstream blocking = create_stream(0, CU_STREAM_DEFAULT);
  const CUdeviceptr later = allocate(0, kCopySize);
  add(copy(device(host), a));
  const CUgraphExec exec = instantiate();
  launch(exec, nullptr);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(later, device(host), kCopySize, blocking));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(blocking));
  EXPECT_EQ(pattern(kCopySize, 1), peek(later, kCopySize));
}

TEST_F(GraphRun, NodeRunsInItsOwnContext) {
  // GPU 1 has no access to GPU 0's memory, GPU 0 has it to GPU 1's.
  add(copy(b, a), 1);
  launch(instantiate(), stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(1U, polypath_sim_bounced_copies());
  enable_peer(1, 0);
  launch(execs.back(), stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(1U, polypath_sim_bounced_copies());
  EXPECT_EQ(pattern(kCopySize, 1), peek(b, kCopySize));
}

TEST_F(GraphRun, ContextSynchronize_WaitsForItsNodes) {
  write(b, pattern(kCopySize, 2));
  add(copy(device(host), b), 1);
  launch(instantiate(), stream);
  use(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
  EXPECT_EQ(pattern(kCopySize, 2), on_host());
  use(0);
}

TEST_F(GraphRun, TwoLaunchesOfOneDoNotOverlap) {
  // The first leg of the second launch must not overwrite the staging memory of the first one's
  // second.
  const CUgraphNode in = add(copy(device(host), a));
  add(copy(b, device(host)), 1, {in});
  const CUgraphExec exec = instantiate();
  const CUstream other = create_stream(0);
  launch(exec, stream);
  launch(exec, other);
  const CUevent first = record(stream);
  const CUevent second = record(other);
  // A launch takes 6 + 50 us for each leg, and an event between them.
  EXPECT_GT(elapsed_us(first, second), 100);
}

TEST_F(GraphRun, HeldLaunch_HoldsOnlyItsOwnGraph) {
  add(copy(b, a));
  const CUgraphExec exec = instantiate();
  const CUgraphExec second_exec = instantiate();
  const CUstream other = create_stream(0);
  const CUstream third = create_stream(0);
  hold(stream);
  launch(exec, stream);
  launch(exec, other);
  launch(second_exec, third);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(third));
  polypath_sim_advance_us(1e6);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
  EXPECT_EQ(1U, polypath_sim_link_copies("gpu0", "gpu1"));
  word->store(1);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(other));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
  EXPECT_EQ(3U, polypath_sim_link_copies("gpu0", "gpu1"));
}

TEST_F(GraphRun, WaitForNextLaunchOfGraph_NeverEnds) {
  // The stream waits for what the second launch would write, which waits for the first: on hardware
  // nothing moves any more.
  const CUdeviceptr flag = allocate(0, 4);
  const CUdeviceptr flag_value = allocate(0, 4);
  write(flag, {0, 0, 0, 0});
  write(flag_value, {1, 0, 0, 0});
  add(copy(flag, flag_value, 4));
  const CUgraphExec exec = instantiate();
  const CUstream other = create_stream(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  launch(exec, stream);
  launch(exec, other);
  polypath_sim_advance_us(1e6);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
  const CUstream rescue = create_stream(0);
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(flag, flag_value, 4, rescue));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(other));
}

TEST_F(GraphRun, RunningLaunch_OutlivesItsGraphs) {
  add(copy(device(host), a));
  const CUgraphExec exec = instantiate();
  launch(exec, stream);
  EXPECT_EQ(0U, polypath_sim_graphs_modified_in_flight());
  EXPECT_CUDA(CUDA_SUCCESS, cuGraphDestroy(graph));
  EXPECT_CUDA(CUDA_SUCCESS, cuGraphExecDestroy(exec));
  graphs.clear();
  execs.clear();
  EXPECT_EQ(1U, polypath_sim_graphs_modified_in_flight());
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(pattern(kCopySize, 1), on_host());
}

TEST_F(GraphRun, FreeingMemoryWaitsForALaunch) {
  const CUdeviceptr middle = allocate(1, kCopySize);
  const CUgraphNode in = add(copy(middle, a));
  add(copy(device(host), middle), 0, {in});
  launch(instantiate(), stream);
  use(1);  // its context has no work of its own
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(middle));
  EXPECT_EQ(pattern(kCopySize, 1), on_host());
  use(0);
}

}  // namespace
}  // namespace polypath::sim::test
