#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>

#include "base/units.hpp"
#include "call.hpp"
#include "device_traits.hpp"
#include "driver.hpp"

namespace polypath::sim {
namespace {

// What a context takes of its GPU's memory. Order of magnitude, not measured.
constexpr std::uint64_t kContextBytes = 300 * kMiB;

// What the call takes of a CPU. An order of magnitude, not measured.
constexpr double kPeerAccessUs = 200;

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

void Driver::take_context_time() {
  counters.contexts_at_once = std::max(counters.contexts_at_once, ++contexts_in_making_);
  if (contexts_in_making_ >= held_contexts_) held_contexts_ = 0;
  const auto deadline = std::chrono::steady_clock::now() + mode.timeout;
  while (held_contexts_ > 0 && std::chrono::steady_clock::now() < deadline) {
    mutex.unlock();
    std::this_thread::sleep_for(kPollInterval);
    mutex.lock();
  }
  devices_->take_long(node.costs.context_create_us);
  --contexts_in_making_;
}

CUcontext Driver::create_context(int device, unsigned flags, bool is_primary) {
  auto context = std::make_unique<Context>();
  require(mode.compute != Mode::Compute::prohibited, CUDA_ERROR_DEVICE_UNAVAILABLE);
  if (mode.compute == Mode::Compute::exclusive_process) {
    std::weak_ptr<void>& claim = claims[static_cast<std::size_t>(device)];
    context->claim = claim.lock();
    if (!context->claim) claim = context->claim = claim_gpu(mode.machine, node.name, device);
  }
  context->room = memory.take(device, kContextBytes);
  context->device = device;
  context->flags = flags;
  context->is_primary = is_primary;
  Context& created = contexts_.add(std::move(context));
  streams_.init_legacy(created);
  return created.handle;
}

void Driver::destroy_context(CUcontext handle) {
  streams_.synchronize(handle);
  deallocator_.free_all(handle);
  const Context& context = contexts_.get(handle, CUDA_ERROR_INVALID_CONTEXT);
  streams_.destroy_all(context);
  events_.destroy_all(context);
  kernels_.unload_all(context);
  contexts_.remove(handle);
}

void Driver::end_primary(int device) {
  // From here on a thread that retains it gets a new one, while this one waits for work.
  CUcontext& handle = primaries[static_cast<std::size_t>(device)].handle;
  if (const CUcontext ended = std::exchange(handle, nullptr)) destroy_context(ended);
}

}  // namespace polypath::sim

using namespace polypath::sim;

// Contexts: primary and own ones, the stack of the thread, peer access.

namespace {

Driver::Primary& primary(Driver& driver, CUdevice device) {
  return driver.primaries[static_cast<std::size_t>(check_device(driver.node, device))];
}

CUresult create(CUcontext* context, unsigned flags, CUdevice device) {
  return call([&](Driver& driver) {
    CUcontext& result = out(context);
    check_device(driver.node, device);
    driver.take_context_time();
    result = driver.create_context(device, flags, false);
    context_stack().push_back(result);
  });
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call([&](Driver& driver) {
    Driver::Primary& of_device = primary(driver, device);
    out(context);
    if (of_device.handle == nullptr) driver.take_context_time();
    // Another thread may have made it meanwhile.
    if (of_device.handle == nullptr) of_device.handle = driver.create_context(device, 0, true);
    ++of_device.retained;
    *context = of_device.handle;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return call([&](Driver& driver) {
    Driver::Primary& of_device = primary(driver, device);
    require(of_device.retained > 0, CUDA_ERROR_INVALID_CONTEXT);
    if (--of_device.retained == 0) driver.end_primary(device);
  });
}

// Earlier retains still need their releases. Until the next retain there is no context.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return call([&](Driver& driver) {
    const CUcontext context = primary(driver, device).handle;
    if (context == nullptr) return;
    driver.graph_execs().destroy_all(context);
    driver.end_primary(device);
  });
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return call([&](Driver& driver) {
    const CUcontext context = primary(driver, device).handle;
    out(flags) = context == nullptr ? 0 : driver.contexts().get(context).flags;
    out(active) = context == nullptr ? 0 : 1;
  });
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return create(context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int, unsigned int flags,
                        CUdevice device) {
  if (affinity != nullptr)
    return guarded([] { fail_not_supported("cuCtxCreate_v3 with an execution affinity"); });
  return create(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags,
                        CUdevice device) {
  if (parameters != nullptr)
    return guarded([] { fail_not_supported("cuCtxCreate_v4 with parameters"); });
  return create(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return call([&](Driver& driver) {
    // A primary context ends with its last release.
    require(!driver.contexts().get(context, CUDA_ERROR_INVALID_CONTEXT).is_primary,
            CUDA_ERROR_INVALID_CONTEXT);
    driver.destroy_context(context);
    std::vector<CUcontext>& stack = context_stack();
    if (!stack.empty() && stack.back() == context) stack.pop_back();
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return call([&](Driver&) {
    const std::vector<CUcontext>& stack = context_stack();
    out(context) = stack.empty() ? nullptr : stack.back();
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return call([&](Driver& driver) {
    if (context != nullptr) driver.contexts().get(context, CUDA_ERROR_INVALID_CONTEXT);
    std::vector<CUcontext>& stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return call([&](Driver& driver) {
    driver.contexts().get(context, CUDA_ERROR_INVALID_CONTEXT);
    context_stack().push_back(context);
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return call([&](Driver&) {
    std::vector<CUcontext>& stack = context_stack();
    require(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
    if (context != nullptr) *context = stack.back();
    stack.pop_back();
  });
}

CUresult cuCtxGetDevice(CUdevice* device) { return cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
  return call(
      [&](Driver& driver) { out(device) = driver.contexts().get_or_current(context).device; });
}

CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  return call([&](Driver& driver) { out(id) = driver.contexts().get_or_current(context).id; });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return call([&](Driver& driver) { out(flags) = driver.contexts().current().flags; });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return call([&](Driver& driver) {
    Context& context = driver.contexts().current();
    require((flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0, CUDA_ERROR_INVALID_VALUE);
    context.flags = flags;
  });
}

CUresult cuCtxSynchronize() { return cuCtxSynchronize_v2(nullptr); }

CUresult cuCtxSynchronize_v2(CUcontext context) {
  return call([&](Driver& driver) {
    driver.captures().require_unsafe_calls_allowed();
    driver.devices().spend(driver.node.costs.call_us);
    const CUcontext handle = driver.contexts().get_or_current(context).handle;
    driver.streams().synchronize(handle);
    if (const Context* const owner = driver.contexts().find(handle)) owner->require_no_fault();
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return call([&](Driver& driver) {
    Context& context = driver.contexts().current();
    const Context& other = driver.contexts().get(peer, CUDA_ERROR_INVALID_CONTEXT);
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    require(peer != context.handle && has_peer_link(driver.node, context.device, other.device),
            CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    require(context.peers.insert(peer).second, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    driver.devices().take_long(kPeerAccessUs);
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return call([&](Driver& driver) {
    Context& context = driver.contexts().current();
    driver.contexts().get(peer, CUDA_ERROR_INVALID_CONTEXT);
    require(context.peers.erase(peer) == 1, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  });
}
