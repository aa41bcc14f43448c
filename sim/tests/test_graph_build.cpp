// What a graph may be made of, and what a thread may do with graphs.
#include <array>

#include "graph_test.hpp"

namespace polypath::sim::test {
namespace {

using GraphBuild = GraphTest;

TEST_F(GraphBuild, NodesAreListedInTheOrderOfTheirAddition) {
  const std::vector<CUgraphNode> added{add(copy(b, a)), add(copy(c, a)), add(copy(b, a))};
  std::size_t count = 0;
  EXPECT_CUDA(CUDA_SUCCESS, cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(3U, count);
  std::vector<CUgraphNode> nodes(4, added[0]);
  count = nodes.size();
  EXPECT_CUDA(CUDA_SUCCESS, cuGraphGetNodes(graph, nodes.data(), &count));
  EXPECT_EQ(3U, count);
  EXPECT_EQ((std::vector{added[0], added[1], added[2], CUgraphNode{}}), nodes);
  count = 2;
  EXPECT_CUDA(CUDA_SUCCESS, cuGraphGetNodes(graph, nodes.data(), &count));
  EXPECT_EQ(2U, count);
  EXPECT_EQ(3U, polypath_sim_graph_nodes(graph));
}

TEST_F(GraphBuild, DependenciesAreNodesOfTheGraph) {
  const CUgraphNode first = add(copy(b, a));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, try_add(copy(b, a), 0, {first, first}));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, try_add(copy(b, a), 0, {nullptr}));
  const CUDA_MEMCPY3D parameters = copy(b, a);
  CUgraphNode node = nullptr;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              cuGraphAddMemcpyNode(&node, graph, nullptr, 1, &parameters, context(0)));
  const CUgraph other = std::exchange(graph, create_graph());
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, try_add(copy(b, a), 0, {first}));
  EXPECT_CUDA(CUDA_SUCCESS, cuGraphDestroy(other));
  std::erase(graphs, other);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, try_add(copy(b, a), 0, {first}));
  EXPECT_EQ(0U, polypath_sim_graph_nodes(graph));
}

TEST_F(GraphBuild, CopiesAreOneDimensional) {
  const auto expect = [this](CUresult expected, auto change) {
    CUDA_MEMCPY3D parameters = copy(b, a);
    change(parameters);
    EXPECT_CUDA(expected, try_add(parameters));
  };
  using P = CUDA_MEMCPY3D;
  for (const auto field : {&P::Height, &P::Depth, &P::srcXInBytes, &P::srcY, &P::srcZ, &P::srcLOD,
                           &P::dstXInBytes, &P::dstY, &P::dstZ, &P::dstLOD})
    expect(CUDA_ERROR_NOT_SUPPORTED, [field](P& p) { p.*field = 2; });
  for (const auto field : {&P::WidthInBytes, &P::Height, &P::Depth})
    expect(CUDA_ERROR_INVALID_VALUE, [field](P& p) { p.*field = 0; });
  for (const auto field : {&P::srcPitch, &P::dstPitch}) {
    expect(CUDA_ERROR_INVALID_VALUE, [field](P& p) { p.*field = kCopySize - 1; });
    expect(CUDA_SUCCESS, [field](P& p) { p.*field = kCopySize; });
  }
  for (const auto field : {&P::reserved0, &P::reserved1})
    expect(CUDA_ERROR_INVALID_VALUE, [&, field](P& p) { p.*field = this; });
  EXPECT_EQ(2U, polypath_sim_graph_nodes(graph));
}

TEST_F(GraphBuild, MemoryIsOfTheTypeThatIsNamed) {
  CUdeviceptr managed = 0;
  EXPECT_CUDA(CUDA_SUCCESS, cuMemAllocManaged(&managed, kCopySize, CU_MEM_ATTACH_GLOBAL));
  const auto from = [this](CUmemorytype type, CUdeviceptr address) {
    CUDA_MEMCPY3D parameters = copy(b, 0);
    parameters.srcMemoryType = type;
    parameters.srcDevice = type == CU_MEMORYTYPE_HOST ? 0 : address;
    parameters.srcHost =
        type == CU_MEMORYTYPE_HOST ? reinterpret_cast<const void*>(address) : nullptr;
    return try_add(parameters);
  };
  EXPECT_CUDA(CUDA_SUCCESS, from(CU_MEMORYTYPE_DEVICE, a));
  EXPECT_CUDA(CUDA_SUCCESS, from(CU_MEMORYTYPE_HOST, device(host)));
  EXPECT_CUDA(CUDA_SUCCESS, from(CU_MEMORYTYPE_UNIFIED, device(host)));
  EXPECT_CUDA(CUDA_SUCCESS, from(CU_MEMORYTYPE_DEVICE, managed));
  EXPECT_CUDA(CUDA_SUCCESS, from(CU_MEMORYTYPE_HOST, managed));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, from(CU_MEMORYTYPE_DEVICE, device(host)));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, from(CU_MEMORYTYPE_HOST, a));
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, from(CU_MEMORYTYPE_ARRAY, a));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, from(CUmemorytype{}, a));
}

TEST_F(GraphBuild, MemoryExistsAndIsNotPageable) {
  std::array<std::uint8_t, 16> local{};
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, try_add(copy(b, device(local.data()), local.size())));
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, try_add(copy(device(local.data()), a, local.size())));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, try_add(copy(b, 0)));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, try_add(copy(b, a, 2 * kCopySize)));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, try_add(copy(b + 1, a)));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(b));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, try_add(copy(b, a)));
}

TEST_F(GraphBuild, MemoryExistsStillAtTheInstantiation) {
  add(copy(b, a));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemFree(b));
  CUgraphExec exec = nullptr;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 0));
}

TEST_F(GraphBuild, ContextsAreLive) {
  CUcontext own = nullptr;
  ASSERT_CUDA(cuCtxCreate(&own, nullptr, 0, 0));
  const CUDA_MEMCPY3D parameters = copy(b, a);
  const auto add_in = [&](CUcontext in) {
    CUgraphNode node = nullptr;
    return cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &parameters, in);
  };
  EXPECT_CUDA(CUDA_SUCCESS, add_in(own));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, add_in(nullptr));
  CUgraphExec exec = instantiate();
  ASSERT_CUDA(cuCtxDestroy(own));
  use(0);
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, add_in(own));
  EXPECT_CUDA(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGraphLaunch(exec, stream));
  EXPECT_CUDA(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGraphInstantiateWithFlags(&exec, graph, 0));
}

TEST_F(GraphBuild, HandlesAreRecognised) {
  const CUgraphNode node = add(copy(b, a));
  const CUgraphExec exec = instantiate();
  CUgraphExec other = nullptr;
  std::size_t count = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(std::bit_cast<CUgraphExec>(graph), stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuGraphLaunch(exec, std::bit_cast<CUstream>(exec)));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(nullptr, nullptr, &count));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&other, nullptr, 0));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(std::bit_cast<CUgraph>(node)));
  EXPECT_CUDA(CUDA_SUCCESS, cuGraphExecDestroy(exec));
  execs.clear();
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(exec));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, set(exec, node, copy(b, a)));
}

TEST_F(GraphBuild, FlagsAreNot) {
  CUgraph other = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&other, 1));
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED,
              cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
}

TEST_F(GraphBuild, DeviceWorkNeedsACurrentContext) {
  add(copy(b, a));
  CUgraphExec exec = instantiate();
  ASSERT_CUDA(cuCtxSetCurrent(nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuGraphLaunch(exec, stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, cuGraphInstantiateWithFlags(&exec, graph, 0));
}

}  // namespace
}  // namespace polypath::sim::test
