#include "nccl/engine.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

#include "gate/lookup.hpp"

namespace polypath::nccl {
namespace {

/// What was found at the first try.
struct EngineState {
  gate::PolypathApi api{};
  bool is_tried = false;
  std::string why;  ///< "": it is there
};

void* open_driver() noexcept {
  const char* name = std::getenv("POLYPATH_DRIVER_LIBRARY");
  if (name == nullptr || *name == '\0') name = "libcuda.so.1";
  return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

void find_library(EngineState& state) noexcept {
  void* const library = gate::open_polypath(gate::Folder::resolved, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    state.why = why != nullptr ? why : "there is no libpolypath beside it";
    return;
  }
  state.api = gate::find_functions(library);
  if (!state.api.has_copies() || !state.api.has_collectives())
    state.why = "the libpolypath beside it is of another version";
  else if (!gate::driver::is_whole())
    state.why = "there is no CUDA driver";
}

/// Null, with `why`: no context can be made.
EngineRef acquire(const gate::PolypathApi& api, std::string& why) {
  const RelaxedCapture relaxed;
  auto engine = std::make_unique<Engine>(api);
  if (api.offload_acquire_context(&engine->context) != POLYPATH_SUCCESS) {
    why = api.last_error();
    return nullptr;
  }
  return {engine.release(), [](const Engine* used) {
            used->offload_release_context(used->context);
            delete used;
          }};
}

}  // namespace

EngineRef engine(std::string* why) noexcept {
  static constinit std::atomic<pid_t> owner{0};
  static constinit std::mutex mutex;
  static auto& state = *new EngineState;
  pid_t no_owner = 0;
  owner.compare_exchange_strong(no_owner, getpid());
  // A child may have been forked while a thread of its parent had the lock.
  if (owner.load() != getpid()) {
    if (why != nullptr) *why = "the process is a child of one that has polypath";
    return nullptr;
  }
  const std::lock_guard lock(mutex);
  if (!state.is_tried) find_library(state);
  state.is_tried = true;
  EngineRef used = state.why.empty() ? acquire(state.api, state.why) : nullptr;
  if (why != nullptr) *why = state.why;
  return used;
}

}  // namespace polypath::nccl

// Past the shim: these are not the program's copies.
void* polypath::gate::find_in_driver(const char* name) noexcept {
  static void* const library = nccl::open_driver();
  return library != nullptr ? real_dlsym()(library, name) : nullptr;
}
