// Contexts: primary and own ones, the stack of the thread, peer access.
#include "call.hpp"
#include "contexts.hpp"

using namespace polypath::sim;

namespace {

Driver::Primary& primary(Driver& driver, CUdevice device) {
  return driver.primaries[static_cast<std::size_t>(driver.check_device(device))];
}

CUresult create(CUcontext* context, unsigned flags, CUdevice device) {
  return call([&](Driver& driver) {
    CUcontext& result = out(context);
    result = driver.create_context(driver.check_device(device), flags, false);
    context_stack().push_back(result);
  });
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call([&](Driver& driver) {
    Driver::Primary& of_device = primary(driver, device);
    out(context);
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

// Whoever retained it still has to release it; until somebody retains it anew there is none.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return call([&](Driver& driver) {
    const CUcontext context = primary(driver, device).handle;
    if (context == nullptr) return;
    driver.destroy_graph_execs(context);
    driver.end_primary(device);
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return call([&](Driver& driver) {
    const CUcontext context = primary(driver, device).handle;
    out(flags) = context == nullptr ? 0 : driver.contexts.get(context).flags;
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
    require(!driver.contexts.get(context, CUDA_ERROR_INVALID_CONTEXT).is_primary,
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
    if (context != nullptr) driver.contexts.get(context, CUDA_ERROR_INVALID_CONTEXT);
    std::vector<CUcontext>& stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return call([&](Driver& driver) {
    driver.contexts.get(context, CUDA_ERROR_INVALID_CONTEXT);
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
  return call([&](Driver& driver) { out(device) = driver.context_or_current(context).device; });
}

CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  return call([&](Driver& driver) { out(id) = driver.context_or_current(context).id; });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return call([&](Driver& driver) { out(flags) = driver.current_context().flags; });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return call([&](Driver& driver) {
    Context& context = driver.current_context();
    require((flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0, CUDA_ERROR_INVALID_VALUE);
    context.flags = flags;
  });
}

CUresult cuCtxSynchronize() { return cuCtxSynchronize_v2(nullptr); }

CUresult cuCtxSynchronize_v2(CUcontext context) {
  return call([&](Driver& driver) {
    driver.require_capture_allows();
    driver.spend(driver.node.costs.call_us);
    driver.synchronize(driver.context_or_current(context).handle);
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return call([&](Driver& driver) {
    Context& context = driver.current_context();
    const Context& other = driver.contexts.get(peer, CUDA_ERROR_INVALID_CONTEXT);
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    require(peer != context.handle, CUDA_ERROR_INVALID_CONTEXT);
    require(driver.has_peer_link(context.device, other.device), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    require(context.peers.insert(peer).second, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  });
}
