#include "host_kernel.hpp"

#include <string_view>

#include "exec/kernels/link_copy.h"

namespace polypath::test {
namespace {

struct State {
  std::shared_ptr<const CudaDriver> really;
  HostKernelDriver::Calls calls;
};

State& state() {
  static State state;
  return state;
}

// Modules and functions are the context that they were loaded in.
CUcontext context_of(CUfunction function) { return reinterpret_cast<CUcontext>(function); }

/// What the kernel would be told; all null for anything else than a launch of it.
HostKernelDriver::Launch launch_of(CUfunction function, unsigned int blocks, unsigned int threads,
                                   void* const* arguments) {
  if (threads != kLaneThreads) return {};
  return {context_of(function),
          blocks,
          *static_cast<const CUdeviceptr*>(arguments[0]),
          *static_cast<const CUdeviceptr*>(arguments[1]),
          *static_cast<const std::uint64_t*>(arguments[2]),
          *static_cast<const CUdeviceptr*>(arguments[3])};
}

CUresult module_load_data(CUmodule* module, const void*) {
  CUcontext context = nullptr;
  const CUresult result = state().really->ctx_get_current(&context);
  *module = reinterpret_cast<CUmodule>(context);
  return result;
}

CUresult module_get_function(CUfunction* function, CUmodule module, const char* name) {
  *function = reinterpret_cast<CUfunction>(module);
  return std::string_view(name) == "polypath_link_copy" ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult module_unload(CUmodule) { return CUDA_SUCCESS; }

CUresult launch_kernel(CUfunction function, unsigned int blocks, unsigned int, unsigned int,
                       unsigned int threads, unsigned int, unsigned int, unsigned int,
                       CUstream stream, void** arguments, void**) {
  const HostKernelDriver::Launch launch = launch_of(function, blocks, threads, arguments);
  CUcontext current = nullptr;
  CUcontext of_stream = nullptr;
  state().really->ctx_get_current(&current);
  state().really->stream_get_ctx(stream, &of_stream);
  if (launch.context == nullptr || current != launch.context || of_stream != launch.context)
    return CUDA_ERROR_INVALID_HANDLE;
  state().calls.launches.push_back(launch);
  return state().really->memcpy_async(launch.dst, launch.src, launch.bytes, stream);
}

CUDA_MEMCPY3D copy_of(const HostKernelDriver::Launch& launch) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = launch.src;
  copy.dstDevice = launch.dst;
  copy.WidthInBytes = launch.bytes;
  copy.Height = copy.Depth = 1;
  return copy;
}

HostKernelDriver::Launch launch_of(const CUDA_KERNEL_NODE_PARAMS& node) {
  return launch_of(node.func, node.gridDimX, node.blockDimX, node.kernelParams);
}

CUresult graph_add_kernel_node(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                               std::size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  const auto& launch = state().calls.nodes.emplace_back(launch_of(*params));
  const CUDA_MEMCPY3D copy = copy_of(launch);
  return state().really->graph_add_memcpy_node(node, graph, after, count, &copy, launch.context);
}

CUresult graph_exec_kernel_node_set_params(CUgraphExec executable, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* params) {
  const auto& launch = state().calls.nodes.emplace_back(launch_of(*params));
  const CUDA_MEMCPY3D copy = copy_of(launch);
  return state().really->graph_exec_memcpy_node_set_params(executable, node, &copy, launch.context);
}

CUresult memcpy_async(CUdeviceptr dst, CUdeviceptr src, std::size_t bytes, CUstream stream) {
  ++state().calls.copies;
  return state().really->memcpy_async(dst, src, bytes, stream);
}

CUresult graph_add_memcpy_node(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                               std::size_t count, const CUDA_MEMCPY3D* copy, CUcontext context) {
  ++state().calls.copy_nodes;
  return state().really->graph_add_memcpy_node(node, graph, after, count, copy, context);
}

CUresult graph_exec_memcpy_node_set_params(CUgraphExec executable, CUgraphNode node,
                                           const CUDA_MEMCPY3D* copy, CUcontext context) {
  ++state().calls.copy_nodes;
  return state().really->graph_exec_memcpy_node_set_params(executable, node, copy, context);
}

}  // namespace

HostKernelDriver::HostKernelDriver(std::shared_ptr<const CudaDriver> driver)
    : table_(std::make_shared<CudaDriver>(*driver)) {
  state() = {std::move(driver), {}};
  table_->module_load_data = &module_load_data;
  table_->module_get_function = &module_get_function;
  table_->module_unload = &module_unload;
  table_->launch_kernel = &launch_kernel;
  table_->graph_add_kernel_node = &graph_add_kernel_node;
  table_->graph_exec_kernel_node_set_params = &graph_exec_kernel_node_set_params;
  table_->memcpy_async = &memcpy_async;
  table_->graph_add_memcpy_node = &graph_add_memcpy_node;
  table_->graph_exec_memcpy_node_set_params = &graph_exec_memcpy_node_set_params;
}

HostKernelDriver::~HostKernelDriver() { state() = {}; }

const HostKernelDriver::Calls& HostKernelDriver::calls() const { return state().calls; }

void HostKernelDriver::clear() { state().calls = {}; }

}  // namespace polypath::test
