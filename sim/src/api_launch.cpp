// Launches of kernels, on streams and as nodes of graphs.
#include <cstring>

#include "call.hpp"
#include "device_traits.hpp"

using namespace polypath::sim;

namespace {

struct Shape {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
};

/// The call, with the parameters as they are now.
KernelCall read_call(Driver& driver, CUfunction handle, const Shape& shape, void** parameters,
                     void** extra) {
  const Function& function = driver.kernels().function(handle);
  const polypath::simt::HostKernel& kernel = *function.host_kernel;
  if (extra != nullptr && parameters == nullptr)
    fail_not_supported("a launch with its parameters in one buffer");
  for (const unsigned each : shape.grid) require(each > 0, CUDA_ERROR_INVALID_VALUE);
  for (const unsigned each : shape.block) require(each > 0, CUDA_ERROR_INVALID_VALUE);
  if (shape.grid[1] * shape.grid[2] * shape.block[1] * shape.block[2] != 1)
    fail_not_supported("a launch of more than one dimension");
  require(shape.block[0] <= 1024, CUDA_ERROR_INVALID_VALUE);
  require(shape.block[0] <= kernel.max_threads, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  if (shape.block[0] % 32 != 0) fail_not_supported("a block with a part of a warp");
  require(shape.shared_bytes <= static_cast<unsigned>(function.dynamic_shared_bytes),
          CUDA_ERROR_INVALID_VALUE);
  require(parameters != nullptr || kernel.parameter_bytes.empty(), CUDA_ERROR_INVALID_VALUE);
  KernelCall call{&kernel, function.context, shape.grid[0], shape.block[0], shape.shared_bytes, {},
                  false};
  for (std::size_t i = 0; i < kernel.parameter_bytes.size(); ++i) {
    require(parameters[i] != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto* const begin = static_cast<const std::byte*>(parameters[i]);
    call.arguments.emplace_back(begin, begin + kernel.parameter_bytes[i]);
  }
  return call;
}

void require_together(Driver& driver, const KernelCall& kernel) {
  const int device = driver.contexts().get(kernel.context).device;
  require(kernel.blocks <= static_cast<unsigned>(multiprocessors(driver.node, device)),
          CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

/// Hardware refuses the attribute before compute capability 9.
void require_can_begin_early(Driver& driver, const KernelCall& kernel) {
  const int device = driver.contexts().get(kernel.context).device;
  const std::string& gpu = driver.node.gpus[static_cast<std::size_t>(device)].name;
  if (device_traits(gpu).compute_major < 9)
    fail_not_supported("programmatic stream serialization on this GPU");
}

struct Attributes {
  bool is_cooperative = false;
  bool begins_early = false;
};

CUresult launch(CUfunction function, const Shape& shape, CUstream stream, void** parameters,
                void** extra, const Attributes& attributes) {
  return call([&](Driver& driver) {
    driver.contexts().current();
    KernelCall kernel = read_call(driver, function, shape, parameters, extra);
    if (attributes.is_cooperative) require_together(driver, kernel);
    kernel.begins_early = attributes.begins_early;
    if (kernel.begins_early) require_can_begin_early(driver, kernel);
    driver.kernels().launch(kernel, stream);
  });
}

Shape shape_of(const CUDA_KERNEL_NODE_PARAMS& params) {
  return {{params.gridDimX, params.gridDimY, params.gridDimZ},
          {params.blockDimX, params.blockDimY, params.blockDimZ},
          params.sharedMemBytes};
}

KernelCall read_node(Driver& driver, const CUDA_KERNEL_NODE_PARAMS* params) {
  require(params != nullptr, CUDA_ERROR_INVALID_VALUE);
  return read_call(driver, params->func, shape_of(*params), params->kernelParams, params->extra);
}

}  // namespace

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** parameters, void** extra) {
  const Shape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  return launch(function, shape, stream, parameters, extra, {});
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void** parameters) {
  const Shape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  return launch(function, shape, stream, parameters, nullptr, {.is_cooperative = true});
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  if (config == nullptr || (config->attrs == nullptr && config->numAttrs > 0))
    return CUDA_ERROR_INVALID_VALUE;
  Attributes attributes;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    switch (static_cast<int>(attribute.id)) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY: break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        attributes.is_cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        attributes.begins_early = attribute.value.programmaticStreamSerializationAllowed != 0;
        break;
      default: return guarded([] { fail_not_supported("cuLaunchKernelEx with this attribute"); });
    }
  }
  const Shape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                    {config->blockDimX, config->blockDimY, config->blockDimZ},
                    config->sharedMemBytes};
  return launch(function, shape, config->hStream, parameters, extra, attributes);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return call([&](Driver& driver) {
    CUgraphNode& result = out(node);
    GraphNode new_node;
    new_node.after = driver.graphs().find_nodes(graph, dependencies, count);
    new_node.work = read_node(driver, parameters);
    result = driver.graphs().add_node(graph, std::move(new_node));
    driver.devices().spend(driver.node.costs.graph_add_node_us);
  });
}

// The function stays: CUDA lets it change within limits that nothing here needs.
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return call([&](Driver& driver) {
    GraphWork& work = driver.graph_execs().work(handle, node);
    auto* const known = std::get_if<KernelCall>(&work);
    require(known != nullptr, CUDA_ERROR_INVALID_VALUE);
    KernelCall call = read_node(driver, parameters);
    require(call.context == known->context, CUDA_ERROR_INVALID_VALUE);
    driver.graph_execs().note_change(handle);
    *known = std::move(call);
    driver.devices().spend(driver.node.costs.graph_set_node_us);
  });
}
