// Instantiated graphs over time: new parameters for their nodes, and memory that comes and goes.
#include "graph_test.hpp"

namespace polypath::sim::test {
namespace {

class GraphParams : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    other = allocate(1, kCopySize);
    node = add(copy(b, a));
    exec = instantiate();
  }

  void run() {
    launch(exec, stream);
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  }

  /// Refused, and the exec does what it did before.
  void expect_refused(const CUDA_MEMCPY3D& parameters) {
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, set(exec, node, parameters));
    write(b, std::vector<std::uint8_t>(kCopySize, 0));
    run();
    EXPECT_EQ(pattern(kCopySize, 1), peek(b, kCopySize));
  }

  static const std::vector<std::uint8_t>& untouched() {
    static const std::vector<std::uint8_t> bytes(kCopySize, 0xC3);
    return bytes;
  }

  CUdeviceptr other = 0;  ///< on GPU 1
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
};

TEST_F(GraphParams, CountForLaterLaunchesOnly) {
  const CUdeviceptr from = allocate(0, kCopySize);
  write(from, pattern(kCopySize, 2));
  launch(exec, stream);
  EXPECT_CUDA(CUDA_SUCCESS, set(exec, node, copy(other, from)));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(pattern(kCopySize, 1), peek(b, kCopySize));
  EXPECT_EQ(untouched(), peek(other, kCopySize));
  run();
  EXPECT_EQ(pattern(kCopySize, 1), peek(b, kCopySize));
  EXPECT_EQ(pattern(kCopySize, 2), peek(other, kCopySize));
}

TEST_F(GraphParams, ChangeInFlightIsCounted) {
  run();
  EXPECT_CUDA(CUDA_SUCCESS, set(exec, node, copy(other, a)));
  EXPECT_EQ(0U, polypath_sim_graphs_modified_in_flight());
  launch(exec, stream);
  EXPECT_CUDA(CUDA_SUCCESS, set(exec, node, copy(b, a)));
  EXPECT_EQ(1U, polypath_sim_graphs_modified_in_flight());
  polypath_sim_advance_us(100);  // over by now, though it was not queried
  EXPECT_CUDA(CUDA_SUCCESS, set(exec, node, copy(b, a)));
  EXPECT_EQ(1U, polypath_sim_graphs_modified_in_flight());
  polypath_sim_reset_counters();
  EXPECT_EQ(0U, polypath_sim_graphs_modified_in_flight());
}

TEST_F(GraphParams, GiveAnotherSize) {
  EXPECT_CUDA(CUDA_SUCCESS, set(exec, node, copy(b + 8, a + 8, 1000)));
  run();
  std::vector<std::uint8_t> expected = untouched();
  const std::vector<std::uint8_t> all = pattern(kCopySize, 1);
  std::copy(all.begin() + 8, all.begin() + 1008, expected.begin() + 8);
  EXPECT_EQ(expected, peek(b, kCopySize));
}

TEST_F(GraphParams, ChangeOneInstantiationOnly) {
  const CUgraphExec second_exec = instantiate();
  EXPECT_CUDA(CUDA_SUCCESS, set(exec, node, copy(other, a)));
  launch(second_exec, stream);
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(untouched(), peek(other, kCopySize));
  EXPECT_EQ(pattern(kCopySize, 1), peek(b, kCopySize));
  launch(instantiate(), stream);  // the graph itself has not changed either
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  EXPECT_EQ(untouched(), peek(other, kCopySize));
}

TEST_F(GraphParams, KeepTheGpusAndTheKindsOfMemory) {
  expect_refused(copy(c, a));                 // on another GPU
  expect_refused(copy(device(host), a));      // of another kind
  expect_refused(copy(b, other));             // the source on another GPU
  expect_refused(copy(b, device(host)));      // the source of another kind
  expect_refused(copy(b, a, 2 * kCopySize));  // out of bounds
  CUdeviceptr pool = 0;
  const CUstream of_gpu1 = create_stream(1);
  use(1);
  ASSERT_CUDA(cuMemAllocAsync(&pool, kCopySize, of_gpu1));
  use(0);
  expect_refused(copy(pool, a));  // of the same GPU, but of another kind
  use(1);
  ASSERT_CUDA(cuMemFreeAsync(pool, of_gpu1));
  use(0);
}

TEST_F(GraphParams, KeepTheContextsOfMemory) {
  CUcontext own = nullptr;
  ASSERT_CUDA(cuCtxCreate(&own, nullptr, 0, 1));
  CUdeviceptr foreign = 0;
  ASSERT_CUDA(cuMemAlloc(&foreign, kCopySize));
  use(0);
  expect_refused(copy(foreign, a));
  ASSERT_CUDA(cuCtxDestroy(own));
}

TEST_F(GraphParams, KeepTheContextOfTheNode) {
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, set(exec, node, copy(b, a), 1));
  const CUDA_MEMCPY3D parameters = copy(b, a);
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT,
              cuGraphExecMemcpyNodeSetParams(exec, node, &parameters, nullptr));
}

TEST_F(GraphParams, HostMemoryIsOfOneKindHoweverItWasPinned) {
  std::vector<std::uint8_t> own = pattern(kCopySize, 5);
  ASSERT_CUDA(cuMemHostRegister(own.data(), kCopySize, CU_MEMHOSTREGISTER_PORTABLE));
  graph = create_graph();
  const CUgraphNode in = add(copy(b, device(host)));
  exec = instantiate();
  EXPECT_CUDA(CUDA_SUCCESS, set(exec, in, copy(b, device(own.data()))));
  run();
  EXPECT_EQ(pattern(kCopySize, 5), peek(b, kCopySize));
  // ... but of the context that it was made in.
  use(1);
  const std::uint8_t* elsewhere = allocate_host(kCopySize);
  use(0);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, set(exec, in, copy(b, device(elsewhere))));
  ASSERT_CUDA(cuMemHostUnregister(own.data()));
}

TEST_F(GraphParams, UnknownNodes_AreRefused) {
  const CUgraphNode later = add(copy(b, a));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, set(exec, later, copy(b, a)));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, set(exec, nullptr, copy(b, a)));
  const CUgraph first = std::exchange(graph, create_graph());
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, set(exec, add(copy(b, a)), copy(b, a)));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuGraphExecMemcpyNodeSetParams(exec, node, nullptr, context(0)));
  EXPECT_CUDA(CUDA_SUCCESS, cuGraphDestroy(first));
  std::erase(graphs, first);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, set(exec, node, copy(b, a)));
  run();  // the instantiated graph itself lives on
  EXPECT_EQ(pattern(kCopySize, 1), peek(b, kCopySize));
}

// ---- memory that is gone ----

TEST_F(GraphParams, FreedMemory_RefusesWholeLaunch) {
  graph = create_graph();
  add(copy(other, a));
  const CUgraphNode second = add(copy(b, a));
  exec = instantiate();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(b));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
  EXPECT_EQ(1U, polypath_sim_stale_graph_launches());
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
  EXPECT_EQ(0U, polypath_sim_copies());
  EXPECT_EQ(untouched(), peek(other, kCopySize));
  // With other memory it is of use again.
  const CUdeviceptr third = allocate(1, kCopySize);
  EXPECT_CUDA(CUDA_SUCCESS, set(exec, second, copy(third, a)));
  run();
  EXPECT_EQ(pattern(kCopySize, 1), peek(third, kCopySize));
  EXPECT_EQ(1U, polypath_sim_stale_graph_launches());
}

TEST_F(GraphParams, MemoryMadeAnewAtTheSameAddressWillDo) {
  std::vector<std::uint8_t> own(kCopySize);
  const auto register_by = [&](int gpu) {
    use(gpu);
    EXPECT_CUDA(CUDA_SUCCESS,
                cuMemHostRegister(own.data(), kCopySize, CU_MEMHOSTREGISTER_PORTABLE));
    use(0);
  };
  register_by(0);
  graph = create_graph();
  add(copy(device(own.data()), a));
  exec = instantiate();
  ASSERT_CUDA(cuMemHostUnregister(own.data()));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
  register_by(1);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
  EXPECT_EQ(2U, polypath_sim_stale_graph_launches());
  ASSERT_CUDA(cuMemHostUnregister(own.data()));
  register_by(0);
  run();
  EXPECT_EQ(pattern(kCopySize, 1), own);
  ASSERT_CUDA(cuMemHostUnregister(own.data()));
}

}  // namespace
}  // namespace polypath::sim::test
