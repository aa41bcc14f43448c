#include "cuda.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>

namespace mpi_bench {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

template <typename Function>
void find_optional(void* library, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  find_optional(library, name, function);
  if (function == nullptr) throw std::runtime_error(fmt::format("{} has no {}", kLibrary, name));
}

Cuda open() {
  void* const library = dlopen(kLibrary, RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(fmt::format("no CUDA driver: {}", dlerror()));
  Cuda cuda{};
  find(library, "cuInit", cuda.init);
  find(library, "cuGetErrorName", cuda.get_error_name);
  find(library, "cuDeviceGetCount", cuda.device_get_count);
  find(library, "cuDeviceGet", cuda.device_get);
  find(library, "cuDeviceGetName", cuda.device_get_name);
  find(library, "cuDevicePrimaryCtxRetain", cuda.primary_ctx_retain);
  find(library, "cuCtxSetCurrent", cuda.ctx_set_current);
  find(library, "cuCtxGetCurrent", cuda.ctx_get_current);
  find(library, "cuCtxEnablePeerAccess", cuda.ctx_enable_peer_access);
  find(library, "cuMemAlloc_v2", cuda.mem_alloc);
  find(library, "cuMemFree_v2", cuda.mem_free);
  find(library, "cuMemHostAlloc", cuda.mem_host_alloc);
  find(library, "cuMemFreeHost", cuda.mem_free_host);
  find(library, "cuMemcpy", cuda.memcpy_sync);
  find(library, "cuMemcpyAsync", cuda.memcpy_async);
  find(library, "cuStreamCreate", cuda.stream_create);
  find(library, "cuStreamDestroy_v2", cuda.stream_destroy);
  find(library, "cuStreamSynchronize", cuda.stream_synchronize);
  find(library, "cuStreamWaitEvent", cuda.stream_wait_event);
  find(library, "cuEventCreate", cuda.event_create);
  find(library, "cuEventDestroy_v2", cuda.event_destroy);
  find(library, "cuEventRecord", cuda.event_record);
  find_optional(library, "cuModuleLoadData", cuda.module_load_data);
  find_optional(library, "cuModuleGetFunction", cuda.module_get_function);
  find_optional(library, "cuLaunchKernel", cuda.launch_kernel);
  cuda.check(cuda.init(0), "cuInit");
  return cuda;
}

}  // namespace

const Cuda& Cuda::get() {
  static const Cuda cuda = open();
  return cuda;
}

void Cuda::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (get_error_name(result, &name) != CUDA_SUCCESS) name = "unknown error";
  throw std::runtime_error(fmt::format("{}: {} ({})", call, name, static_cast<int>(result)));
}

std::string use_gpu(int index) {
  const Cuda& cuda = Cuda::get();
  int count = 0;
  cuda.check(cuda.device_get_count(&count), "cuDeviceGetCount");
  if (index >= count)
    throw std::runtime_error(fmt::format("one GPU a rank, but this node has {} GPUs", count));
  CUdevice device = 0;
  CUcontext context = nullptr;
  char name[256] = "";
  cuda.check(cuda.device_get(&device, index), "cuDeviceGet");
  cuda.check(cuda.device_get_name(name, sizeof name, device), "cuDeviceGetName");
  cuda.check(cuda.primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain");
  cuda.check(cuda.ctx_set_current(context), "cuCtxSetCurrent");
  return name;
}

}  // namespace mpi_bench
