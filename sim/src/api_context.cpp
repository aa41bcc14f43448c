// Contexts: primary and own ones, the stack of the thread, peer access.
#include "call.hpp"
#include "device_traits.hpp"

using namespace polypath::sim;

namespace {

// What the call takes of a CPU. An order of magnitude, not measured.
constexpr double kPeerAccessUs = 200;

CUresult create(CUcontext* context, unsigned flags, CUdevice device) {
  return call([&](Driver& driver) {
    CUcontext& result = out(context);
    result = driver.context_lifecycle().create(check_device(driver.node, device), flags);
    context_stack().push_back(result);
  });
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call([&](Driver& driver) {
    check_device(driver.node, device);
    CUcontext& result = out(context);
    result = driver.context_lifecycle().retain_primary(device);
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return call([&](Driver& driver) {
    driver.context_lifecycle().release_primary(check_device(driver.node, device));
  });
}

// Until the next retain there is no context.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return call([&](Driver& driver) {
    driver.context_lifecycle().reset_primary(check_device(driver.node, device));
  });
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return call([&](Driver& driver) {
    const CUcontext context = driver.context_lifecycle().primary(check_device(driver.node, device));
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
    driver.context_lifecycle().destroy(context);
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
