#include "exec/devices.hpp"

#include <algorithm>
#include <cstddef>

#include "driver/check.hpp"
#include "exec/context_guard.hpp"

namespace polypath {

Devices::Devices(std::shared_ptr<const CudaDriver> driver, int count)
    : driver_(std::move(driver)), contexts_(static_cast<std::size_t>(count), nullptr) {}

Devices::~Devices() {
  for (std::size_t gpu = 0; gpu < contexts_.size(); ++gpu)
    if (contexts_[gpu] != nullptr)
      POLYPATH_WARN(*driver_, primary_ctx_release(static_cast<CUdevice>(gpu)));
}

CUcontext Devices::retain(int gpu) {
  CUcontext& context = contexts_[static_cast<std::size_t>(gpu)];
  if (context == nullptr) {
    CUcontext made = nullptr;
    POLYPATH_CHECK(*driver_, primary_ctx_retain(&made, gpu));
    context = made;
  }
  return context;
}

CUcontext Devices::context(int gpu) {
  const std::lock_guard lock(mutex_);
  return retain(gpu);
}

CUcontext Devices::retain_if_active(int gpu) {
  if (contexts_[static_cast<std::size_t>(gpu)] != nullptr)
    return contexts_[static_cast<std::size_t>(gpu)];
  unsigned int flags = 0;
  int active = 0;
  POLYPATH_CHECK(*driver_, primary_ctx_get_state(gpu, &flags, &active));
  return active != 0 ? retain(gpu) : nullptr;
}

CUcontext Devices::context_if_active(int gpu) {
  const std::lock_guard lock(mutex_);
  return retain_if_active(gpu);
}

int Devices::gpu_of(CUcontext context) {
  if (context == nullptr) return -1;
  const std::lock_guard lock(mutex_);
  if (const auto known = std::ranges::find(contexts_, context); known != contexts_.end())
    return static_cast<int>(known - contexts_.begin());
  for (int gpu = 0; gpu < count(); ++gpu)
    if (retain_if_active(gpu) == context) return gpu;
  return -1;
}

void Devices::enable_peer_access(int from, int to) {
  const std::lock_guard lock(mutex_);
  if (peers_.contains({from, to})) return;
  ContextGuard guard(*driver_);
  const CUcontext peer = retain(to);
  guard.use(retain(from));
  const CUresult result = driver_->ctx_enable_peer_access(peer, 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    throw_driver_error(*driver_, result, "ctx_enable_peer_access(peer, 0)", __FILE__, __LINE__);
  peers_.insert({from, to});
}

}  // namespace polypath
