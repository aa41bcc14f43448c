// Memory of other processes. The calls are the driver's; the engine is told of what came of them, because the
// driver does not say on which GPU imported memory lies.
#include "preload/engine.hpp"
#include "preload/hand_over.hpp"

namespace polypath::preload {
namespace {

void begin_call(Symbol symbol) noexcept {
  begin_process();
  count_call(symbol, 0);
}

/// Tells an engine that is there, or is made now because copies of this memory are to come.
template <typename Tell>
void tell_engine(const Engine* engine, ImportEvent event, Tell&& tell) noexcept {
  if (engine == nullptr) return;
  const InsideEngine inside;
  count(event);
  if (tell(*engine) != POLYPATH_SUCCESS) count(ImportEvent::refused);
}

void* pointer_to(CUdeviceptr address) noexcept { return reinterpret_cast<void*>(address); }

CUresult open_handle(Symbol symbol, CUdeviceptr* address, CUipcMemHandle handle,
                     unsigned flags) noexcept {
  begin_call(symbol);
  const CUresult result = call_driver(symbol, address, handle, flags);
  if (result == CUDA_SUCCESS)
    tell_engine(start_engine(), ImportEvent::imported, [&](const Engine& engine) {
      return engine.memory_imported(engine.context, &handle, pointer_to(*address));
    });
  return result;
}

}  // namespace
}  // namespace polypath::preload

using namespace polypath::preload;

POLYPATH_REPLACEMENT(cuIpcGetMemHandle)(CUipcMemHandle* handle, CUdeviceptr address) {
  begin_call(Symbol::cuIpcGetMemHandle);
  const CUresult result = call_driver(Symbol::cuIpcGetMemHandle, handle, address);
  if (result == CUDA_SUCCESS)
    tell_engine(start_engine(), ImportEvent::exported, [&](const Engine& engine) {
      return engine.memory_exported(engine.context, handle, pointer_to(address));
    });
  return result;
}

POLYPATH_REPLACEMENT(cuIpcOpenMemHandle)
(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return open_handle(Symbol::cuIpcOpenMemHandle, address, handle, flags);
}

POLYPATH_REPLACEMENT(cuIpcOpenMemHandle_v2)
(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return open_handle(Symbol::cuIpcOpenMemHandle_v2, address, handle, flags);
}

// The engine's own imports of the memory go first: nothing uses it any more when the program's goes.
POLYPATH_REPLACEMENT(cuIpcCloseMemHandle)(CUdeviceptr address) {
  begin_call(Symbol::cuIpcCloseMemHandle);
  tell_engine(find_engine(), ImportEvent::closed, [&](const Engine& engine) {
    return engine.memory_closed(engine.context, pointer_to(address));
  });
  return call_driver(Symbol::cuIpcCloseMemHandle, address);
}
