#include "context_lifecycle.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>

#include "base/units.hpp"
#include "failure.hpp"

namespace polypath::sim {
namespace {

// What a context takes of its GPU's memory. Order of magnitude, not measured.
constexpr std::uint64_t kContextBytes = 300 * kMiB;

/// Until the last copy of the result is gone, or the process ends, no other process gets the GPU.
/// An abstract socket leaves no file. Failure DEVICE_UNAVAILABLE when another process has it.
std::shared_ptr<void> claim_gpu(const std::string& machine, const std::string& node, int device) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name =
      fmt::format("polypath-sim-{}-{}-{}-gpu{}", ::getuid(), machine, node, device);
  require(name.size() < sizeof address.sun_path, CUDA_ERROR_DEVICE_UNAVAILABLE);
  name.copy(address.sun_path + 1, name.size());
  const int file = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  require(file >= 0, CUDA_ERROR_OUT_OF_MEMORY);
  const std::shared_ptr<int> claim(new int(file), [](const int* held) {
    ::close(*held);
    delete held;
  });
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  require(::bind(file, reinterpret_cast<const sockaddr*>(&address), size) == 0,
          CUDA_ERROR_DEVICE_UNAVAILABLE);
  return claim;
}

}  // namespace

ContextLifecycle::ContextLifecycle(const Node& node, const Mode& mode, DriverMutex& mutex,
                                   const Parts& parts)
    : node_(node),
      mode_(mode),
      mutex_(mutex),
      parts_(parts),
      primaries_(node.gpus.size()),
      claims_(node.gpus.size()) {}

CUcontext ContextLifecycle::create(int device, unsigned flags) {
  take_time();
  return make(device, flags, false);
}

void ContextLifecycle::destroy(CUcontext handle) {
  require(!parts_.contexts.get(handle, CUDA_ERROR_INVALID_CONTEXT).is_primary,
          CUDA_ERROR_INVALID_CONTEXT);
  end(handle);
}

CUcontext ContextLifecycle::primary(int device) const {
  return primaries_[static_cast<std::size_t>(device)].handle;
}

CUcontext ContextLifecycle::retain_primary(int device) {
  Primary& primary = primary_of(device);
  if (primary.handle == nullptr) take_time();
  // Another thread may have made it meanwhile.
  if (primary.handle == nullptr) primary.handle = make(device, 0, true);
  ++primary.retained;
  return primary.handle;
}

void ContextLifecycle::release_primary(int device) {
  Primary& primary = primary_of(device);
  require(primary.retained > 0, CUDA_ERROR_INVALID_CONTEXT);
  if (--primary.retained == 0) end_primary(device);
}

void ContextLifecycle::reset_primary(int device) {
  const CUcontext handle = primary(device);
  if (handle == nullptr) return;
  parts_.graph_execs.destroy_all(handle);
  end_primary(device);
}

void ContextLifecycle::take_time() {
  parts_.counters.contexts_at_once = std::max(parts_.counters.contexts_at_once, ++in_making_);
  if (in_making_ >= held_) held_ = 0;
  const auto deadline = std::chrono::steady_clock::now() + mode_.timeout;
  while (held_ > 0 && std::chrono::steady_clock::now() < deadline) {
    mutex_.unlock();
    std::this_thread::sleep_for(kPollInterval);
    mutex_.lock();
  }
  parts_.devices.take_long(node_.costs.context_create_us);
  --in_making_;
}

CUcontext ContextLifecycle::make(int device, unsigned flags, bool is_primary) {
  auto context = std::make_unique<Context>();
  require(mode_.compute != Mode::Compute::prohibited, CUDA_ERROR_DEVICE_UNAVAILABLE);
  if (mode_.compute == Mode::Compute::exclusive_process) {
    std::weak_ptr<void>& claim = claims_[static_cast<std::size_t>(device)];
    context->claim = claim.lock();
    if (!context->claim) claim = context->claim = claim_gpu(mode_.machine, node_.name, device);
  }
  context->room = parts_.memory.take(device, kContextBytes);
  context->device = device;
  context->flags = flags;
  context->is_primary = is_primary;
  Context& created = parts_.contexts.add(std::move(context));
  parts_.streams.init_legacy(created);
  return created.handle;
}

void ContextLifecycle::end(CUcontext handle) {
  parts_.streams.synchronize(handle);
  parts_.deallocator.free_all(handle);
  const Context& context = parts_.contexts.get(handle, CUDA_ERROR_INVALID_CONTEXT);
  parts_.streams.destroy_all(context);
  parts_.events.destroy_all(context);
  parts_.kernels.unload_all(context);
  parts_.contexts.remove(handle);
}

void ContextLifecycle::end_primary(int device) {
  // From here on a thread that retains it gets a new one, while this one waits for work.
  CUcontext& handle = primary_of(device).handle;
  if (const CUcontext ended = std::exchange(handle, nullptr)) end(ended);
}

}  // namespace polypath::sim
