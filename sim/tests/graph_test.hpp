// A node with peer access between GPU 0 and the others, buffers on each memory, and short ways to
// graphs of copies. What a test makes is destroyed at its end, and nothing may be left then.
#pragma once

#include "copy_parameters.hpp"
#include "fixture.hpp"

namespace polypath::sim::test {

constexpr std::size_t kCopySize =
    1000 * 1000;  // 10 us from GPU 0 to GPU 1, 20 to GPU 2, 50 to the host

class GraphTest : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    enable_peer(0, 1);
    enable_peer(0, 2);
    a = allocate(0, kCopySize);
    b = allocate(1, kCopySize);
    c = allocate(2, kCopySize);
    host = allocate_host(kCopySize);
    stream = create_stream(0);
    write(a, pattern(kCopySize, 1));
    graph = create_graph();
    polypath_sim_reset_counters();
  }

  void TearDown() override {
    for (const CUgraphExec each : execs) EXPECT_CUDA(CUDA_SUCCESS, cuGraphExecDestroy(each));
    for (const CUgraph each : graphs) EXPECT_CUDA(CUDA_SUCCESS, cuGraphDestroy(each));
    EXPECT_EQ(0U, polypath_sim_live_graphs());
    EXPECT_EQ(0U, polypath_sim_live_graph_execs());
    SimTest::TearDown();
  }

  CUgraph create_graph() {
    EXPECT_CUDA(CUDA_SUCCESS, cuGraphCreate(&graphs.emplace_back(), 0));
    return graphs.back();
  }

  static CUDA_MEMCPY3D copy(CUdeviceptr dst, CUdeviceptr src, std::size_t bytes = kCopySize) {
    return copy_parameters(dst, src, bytes);
  }

  /// What the driver says to such a node of `graph`, in the context of `gpu`.
  CUresult try_add(const CUDA_MEMCPY3D& parameters, int gpu = 0,
                   const std::vector<CUgraphNode>& after = {}, CUgraphNode* added = nullptr) {
    CUgraphNode node = nullptr;
    return cuGraphAddMemcpyNode(added == nullptr ? &node : added, graph, after.data(), after.size(),
                                &parameters, context(gpu));
  }

  CUgraphNode add(const CUDA_MEMCPY3D& parameters, int gpu = 0,
                  const std::vector<CUgraphNode>& after = {}) {
    CUgraphNode node = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, try_add(parameters, gpu, after, &node));
    return node;
  }

  CUgraphExec instantiate() {
    EXPECT_CUDA(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&execs.emplace_back(), graph, 0));
    return execs.back();
  }

  static void launch(CUgraphExec exec, CUstream on) {
    EXPECT_CUDA(CUDA_SUCCESS, cuGraphLaunch(exec, on));
  }

  CUresult set(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D& parameters, int gpu = 0) {
    return cuGraphExecMemcpyNodeSetParams(exec, node, &parameters, context(gpu));
  }

  [[nodiscard]] std::vector<std::uint8_t> on_host() const { return {host, host + kCopySize}; }

  std::vector<CUgraph> graphs;
  std::vector<CUgraphExec> execs;
  CUgraph graph = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr a = 0;  ///< on GPU 0, holds pattern 1
  CUdeviceptr b = 0;  ///< on GPU 1
  CUdeviceptr c = 0;  ///< on GPU 2
  std::uint8_t* host = nullptr;
};

}  // namespace polypath::sim::test
