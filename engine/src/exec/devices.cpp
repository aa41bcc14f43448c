#include "exec/devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <thread>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"

namespace polypath {

Devices::Devices(std::shared_ptr<const CudaDriver> driver, std::shared_ptr<const Nvml> nvml,
                 const Node& node, std::uint64_t pinned_limit)
    : driver_(std::move(driver)), nvml_(std::move(nvml)), node_(node), pinned_(pinned_limit) {
  for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu)
    gpus_.push_back(std::make_unique<State>());
}

Devices::~Devices() {
  // A reset does not release: each holder of a primary context does so afterwards as before.
  for (int gpu = 0; gpu < count(); ++gpu)
    if (state_of(gpu).context != nullptr) POLYPATH_WARN(*driver_, primary_ctx_release(gpu));
}

bool Devices::active(int gpu) const {
  unsigned int flags = 0;
  int is_active = 0;
  POLYPATH_CHECK(*driver_, primary_ctx_get_state(gpu, &flags, &is_active));
  return is_active != 0;
}

CUcontext Devices::retain(int gpu) {
  State& state = state_of(gpu);
  CUcontext context = nullptr;
  POLYPATH_CHECK(*driver_, primary_ctx_retain(&context, gpu));
  if (driver_->ctx_get_id == nullptr || driver_->ctx_get_id(context, &state.id) != CUDA_SUCCESS)
    state.id = 0;
  state.context = context;
  return context;
}

CUcontext Devices::make(int gpu, bool staging) {
  State& state = state_of(gpu);
  if (state.reset)
    throw DriverError(fmt::format("the primary context of GPU {} was reset", gpu),
                      static_cast<int>(CUDA_ERROR_CONTEXT_IS_DESTROYED));
  if (const CUcontext known = state.context) return known;
  const std::lock_guard lock(state.mutex);
  if (const CUcontext known = state.context) return known;
  if (active(gpu)) return retain(gpu);
  struct Making {
    std::atomic<bool>& flag;
    explicit Making(std::atomic<bool>& making) : flag(making) { flag = true; }
    ~Making() { flag = false; }
  } const making(state.making);
  if (staging) {
    const StagingFacts facts = staging_facts(
        *driver_, nvml_.get(), node_.gpus[static_cast<std::size_t>(gpu)], gpu, nullptr);
    const StagingReason reason = polypath::may_stage(facts, 0);
    if (reason != StagingReason::allowed) throw StagingRefused(gpu, reason);
  }
  return retain(gpu);
}

CUcontext Devices::context(int gpu) { return make(gpu, true); }

CUcontext Devices::context_for_program(int gpu) { return make(gpu, false); }

StagingReason Devices::may_stage(int gpu, std::uint64_t bytes) {
  const CUcontext context = context_if_active(gpu);
  return polypath::may_stage(
      staging_facts(*driver_, nvml_.get(), node_.gpus[static_cast<std::size_t>(gpu)], gpu, context),
      bytes);
}

void Devices::require_staging(int gpu, std::uint64_t bytes) {
  const StagingReason reason = may_stage(gpu, bytes);
  if (reason != StagingReason::allowed) throw StagingRefused(gpu, reason);
}

CUcontext Devices::context_if_active(int gpu) {
  State& state = state_of(gpu);
  if (const CUcontext known = state.context) return state.reset ? nullptr : known;
  std::unique_lock lock(state.mutex, std::defer_lock);
  while (!lock.try_lock()) {
    if (state.making) return nullptr;
    std::this_thread::yield();  // another thread asks the driver, which is short
  }
  if (const CUcontext known = state.context) return known;
  return active(gpu) ? retain(gpu) : nullptr;
}

int Devices::gpu_of(CUcontext context) {
  if (context == nullptr) return -1;
  for (int gpu = 0; gpu < count(); ++gpu)
    if (state_of(gpu).context == context) return alive(gpu) ? gpu : -1;
  CUdevice gpu = -1;
  {
    ContextGuard guard(*driver_);
    guard.use(context);
    POLYPATH_CHECK(*driver_, ctx_get_device(&gpu));
  }
  return gpu >= 0 && gpu < count() && context_if_active(gpu) == context ? gpu : -1;
}

void Devices::enable_peer_access(int from, int to) {
  const CUcontext peer = context(to);
  const CUcontext own = context(from);
  const std::lock_guard lock(enabling_);
  if (peers_.contains({from, to})) return;
  ContextGuard guard(*driver_);
  guard.use(own);
  const CUresult result = driver_->ctx_enable_peer_access(peer, 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    throw_driver_error(*driver_, result, "ctx_enable_peer_access(peer, 0)", __FILE__, __LINE__);
  peers_.insert({from, to});
}

bool Devices::alive(int gpu) noexcept {
  State& state = state_of(gpu);
  const CUcontext context = state.context;
  if (context == nullptr) return true;
  if (state.reset) return false;
  bool gone = false;
  if (state.id != 0) {
    unsigned long long id = 0;
    const CUresult result = driver_->ctx_get_id(context, &id);
    gone = result == CUDA_SUCCESS
               ? id != state.id
               : result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT;
  } else {
    // Not numbered: one that was made anew passes for the old one, until a call fails.
    unsigned int flags = 0;
    int is_active = 0;
    gone =
        driver_->primary_ctx_get_state(gpu, &flags, &is_active) == CUDA_SUCCESS && is_active == 0;
  }
  if (!gone) return true;
  if (!state.reset.exchange(true) && !lost_.exchange(true))
    log_info("the primary context of GPU {} was reset: all copies are native from now on", gpu);
  return false;
}

void Devices::mark_failed(int gpu, CUresult result) noexcept {
  if (state_of(gpu).failed.exchange(true)) return;
  try {
    log_message(level_of_result(static_cast<int>(result)),
                fmt::format("GPU {} is not used for other GPUs' transfers any more: calls in its "
                            "context fail with {}",
                            gpu, describe(*driver_, result)));
  } catch (const std::exception&) {
    // Without memory for the line there is none.
  }
}

bool Devices::alive(const Plan& plan) {
  std::vector<MemoryId> memories;
  const auto add = [&](MemoryId memory) {
    if (memory.is_gpu() && std::ranges::find(memories, memory) == memories.end())
      memories.push_back(memory);
  };
  for (const TransferPlan& transfer : plan.transfers) {
    add(transfer.request.src);
    add(transfer.request.dst);
    for (const RouteShare& share : transfer.routes)
      if (share.route.staged()) add(share.route.via);
  }
  return std::ranges::all_of(memories, [&](MemoryId gpu) { return alive(gpu.index); });
}

bool Devices::any_reset() noexcept {
  for (int gpu = 0; gpu < count(); ++gpu) static_cast<void>(alive(gpu));
  return lost_;
}

}  // namespace polypath
