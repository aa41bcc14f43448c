#include "exec/emulated_mesh/emulated_links.hpp"

#include <algorithm>
#include <cstddef>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/emulated_mesh/mesh_node.hpp"
#include "exec/kernels/images.hpp"
#include "exec/kernels/link_copy.h"

namespace polypath {
namespace {

void require_kernels(const CudaDriver& driver) {
  if (link_copy_image().empty())
    throw NotSupported(
        "a mesh cannot be emulated: this library was built without kernels, because there was no "
        "nvcc (`make setup` brings one; then build anew)");
  if (driver.module_load_data == nullptr || driver.module_get_function == nullptr ||
      driver.module_unload == nullptr || driver.launch_kernel == nullptr)
    throw NotSupported("a mesh cannot be emulated: " + driver.library + " loads no kernels");
}

}  // namespace

CUresult LaneCopy::launch(const CudaDriver& driver, CUstream stream) {
  Arguments pointers = arguments();
  return driver.launch_kernel(function, blocks, 1, 1, kLaneThreads, 1, 1, 0, stream,
                              pointers.data(), nullptr);
}

CUDA_KERNEL_NODE_PARAMS LaneCopy::node_params(Arguments& storage) noexcept {
  storage = arguments();
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function;
  params.gridDimX = blocks;
  params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = kLaneThreads;
  params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = storage.data();
  return params;
}

EmulatedLinks::EmulatedLinks(std::shared_ptr<const CudaDriver> driver, const Node& node)
    : driver_(std::move(driver)), gpus_(node.gpus.size()) {
  require_kernels(*driver_);
  try {
    for (const Link& link : node.links) {
      if (!is_emulated(link)) continue;
      const int from = link.from.index;
      const int to = link.to.index;
      load(from);
      load(to);
      // Either end may copy: each reaches the other's memory, and the queues.
      enable_peer_access(from, to);
      enable_peer_access(to, from);
      links_.push_back({.from = from, .to = to, .gbps = link.gbps});
      make_queues(from);
    }
  } catch (...) {
    free_all();
    throw;
  }
}

EmulatedLinks::~EmulatedLinks() { free_all(); }

void EmulatedLinks::load(int gpu) {
  Loaded& loaded = gpus_.at(static_cast<std::size_t>(gpu));
  if (loaded.function != nullptr) return;
  POLYPATH_CHECK(*driver_, primary_ctx_retain(&loaded.context, gpu));
  ContextGuard guard(*driver_);
  guard.use(loaded.context);
  POLYPATH_CHECK(*driver_, module_load_data(&loaded.module, link_copy_image().data()));
  POLYPATH_CHECK(*driver_,
                 module_get_function(&loaded.function, loaded.module, "polypath_link_copy"));
}

void EmulatedLinks::enable_peer_access(int from, int to) {
  ContextGuard guard(*driver_);
  guard.use(on(from).context);
  const CUresult result = driver_->ctx_enable_peer_access(on(to).context, 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    throw_driver_error(*driver_, result, "ctx_enable_peer_access(peer, 0)", __FILE__, __LINE__);
}

void EmulatedLinks::make_queues(int gpu) {
  constexpr std::size_t bytes = kMaxLanes * sizeof(TicketLock);
  ContextGuard guard(*driver_);
  guard.use(on(gpu).context);
  CUdeviceptr& queues = queues_.emplace_back(0);
  POLYPATH_CHECK(*driver_, mem_alloc(&queues, bytes));
  POLYPATH_CHECK(*driver_, memset_d8_async(queues, 0, bytes, CU_STREAM_PER_THREAD));
  POLYPATH_CHECK(*driver_, stream_synchronize(CU_STREAM_PER_THREAD));
}

void EmulatedLinks::free_all() noexcept {
  try {
    ContextGuard guard(*driver_);
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      if (queues_[i] == 0) continue;
      guard.use(on(links_[i].from).context);
      POLYPATH_WARN(*driver_, mem_free(queues_[i]));
    }
    for (const Loaded& loaded : gpus_) {
      if (loaded.module == nullptr) continue;
      guard.use(loaded.context);
      POLYPATH_WARN(*driver_, module_unload(loaded.module));
    }
  } catch (const std::exception& error) {
    log_warn("the lanes of an emulated mesh were not freed: {}", error.what());
  }
  for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu)
    if (gpus_[gpu].context != nullptr)
      POLYPATH_WARN(*driver_, primary_ctx_release(static_cast<CUdevice>(gpu)));
}

void EmulatedLinks::set_lanes(std::size_t index, int lanes, double gbps) {
  links_.at(index).lanes = std::clamp(lanes, 1, kMaxLanes);
  links_.at(index).reached_gbps = gbps;
}

int EmulatedLinks::gpu_of(CUcontext context) const noexcept {
  const auto gpu = std::ranges::find(gpus_, context, &Loaded::context);
  return context == nullptr || gpu == gpus_.end() ? -1 : static_cast<int>(gpu - gpus_.begin());
}

std::size_t EmulatedLinks::find(int from, int to) const noexcept {
  const auto link = std::ranges::find_if(links_, [&](const EmulatedLink& candidate) {
    return candidate.from == from && candidate.to == to;
  });
  return static_cast<std::size_t>(link - links_.begin());
}

bool EmulatedLinks::reaches(int gpu, int memory) const noexcept {
  return gpu == memory || find(gpu, memory) < links_.size();
}

std::optional<LaneCopy> EmulatedLinks::link_copy(CUdeviceptr dst, CUdeviceptr src,
                                                 std::uint64_t bytes, int from, int to,
                                                 int gpu) const {
  const std::size_t link = find(from, to);
  if (link == links_.size() || !reaches(gpu, from) || !reaches(gpu, to)) return std::nullopt;
  return LaneCopy{.function = on(gpu).function,
                  .blocks = static_cast<unsigned int>(links_[link].lanes),
                  .dst = dst,
                  .src = src,
                  .bytes = bytes,
                  .queues = queues_[link]};
}

}  // namespace polypath
