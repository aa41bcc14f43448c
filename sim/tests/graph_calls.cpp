#include "graph_calls.hpp"

#include "base/units.hpp"
#include "polypath_sim.h"

namespace polypath::sim::test {
namespace {

CUDA_MEMCPY3D copy(CUdeviceptr dst, CUdeviceptr src, std::size_t bytes) {
  CUDA_MEMCPY3D parameters{};
  parameters.srcMemoryType = parameters.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  parameters.srcDevice = src;
  parameters.dstDevice = dst;
  parameters.WidthInBytes = bytes;
  parameters.Height = parameters.Depth = 1;
  return parameters;
}

template <typename Call>
double cpu_us(Call&& call) {
  const double begin = polypath_sim_clock_us();
  call();
  return polypath_sim_clock_us() - begin;
}

class PairedGraph {
 public:
  PairedGraph(Rig& rig, int pairs) : rig_(rig) {
    calls.create_us = cpu_us([this] { CHECK_CUDA(cuGraphCreate(&graph_, 0)); });
    for (int i = 0; i < pairs; ++i) {
      const std::size_t offset = static_cast<std::size_t>(i) * kBytes;
      const CUgraphNode first = add(0, copy(rig.host() + offset, rig.gpu(0) + offset, kBytes), {});
      add(1, copy(rig.gpu(1) + offset, rig.host() + offset, kBytes), {first});
    }
  }
  ~PairedGraph() {
    if (exec != nullptr) CHECK_CUDA(cuGraphExecDestroy(exec));
    CHECK_CUDA(cuGraphDestroy(graph_));
  }
  PairedGraph(const PairedGraph&) = delete;
  PairedGraph& operator=(const PairedGraph&) = delete;

  CUgraphNode add(int gpu, const CUDA_MEMCPY3D& parameters, const std::vector<CUgraphNode>& after) {
    CUgraphNode node = nullptr;
    calls.add_us += cpu_us([&] {
      CHECK_CUDA(cuGraphAddMemcpyNode(&node, graph_, after.data(), after.size(), &parameters,
                                      context(gpu)));
    });
    nodes_.push_back({node, gpu, parameters});
    return node;
  }

  void instantiate() {
    rig_.use(0);
    calls.instantiate_us =
        cpu_us([this] { CHECK_CUDA(cuGraphInstantiateWithFlags(&exec, graph_, 0)); });
  }

  void set_all() {
    for (const Node& node : nodes_)
      calls.set_us += cpu_us([&] {
        CHECK_CUDA(
            cuGraphExecMemcpyNodeSetParams(exec, node.handle, &node.parameters, context(node.gpu)));
      });
  }

  void launch(CUstream stream) {
    calls.launch_us = cpu_us([&] { CHECK_CUDA(cuGraphLaunch(exec, stream)); });
  }

  static constexpr std::size_t kBytes = 64 * kKiB;
  GraphCalls calls;
  CUgraphExec exec = nullptr;

 private:
  struct Node {
    CUgraphNode handle;
    int gpu;
    CUDA_MEMCPY3D parameters;
  };

  CUcontext context(int gpu) {
    CUcontext context = nullptr;
    rig_.use(gpu);
    CHECK_CUDA(cuCtxGetCurrent(&context));
    return context;
  }

  Rig& rig_;
  CUgraph graph_ = nullptr;
  std::vector<Node> nodes_;
};

}  // namespace

GraphCalls graph_calls(Rig& rig, int nodes) {
  PairedGraph graph(rig, nodes / 2);
  graph.instantiate();
  graph.set_all();
  graph.launch(rig.stream(0, 0));
  CHECK_CUDA(cuStreamSynchronize(rig.stream(0, 0)));
  return graph.calls;
}

double graph_us(Rig& rig, int nodes) {
  PairedGraph graph(rig, nodes / 2);
  const std::size_t offset = static_cast<std::size_t>(nodes) * PairedGraph::kBytes;
  graph.add(0, copy(rig.gpu(1) + offset, rig.gpu(0) + offset, 8 * kMiB), {});
  graph.instantiate();
  return rig.measure_us([&] { graph.launch(rig.forked(0, 0)); });
}

}  // namespace polypath::sim::test
