#include "nccl/engine.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include "gate/lookup.hpp"

namespace polypath::nccl {
namespace {

struct EngineState {
  Engine engine{};
  bool is_tried = false;
  bool is_there = false;
  std::string why;
};

void* open_driver() noexcept {
  const char* name = std::getenv("POLYPATH_DRIVER_LIBRARY");
  if (name == nullptr || *name == '\0') name = "libcuda.so.1";
  return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

void make(EngineState& state) noexcept {
  void* const library = gate::open_polypath(gate::Folder::resolved, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    state.why = why != nullptr ? why : "there is no libpolypath beside it";
    return;
  }
  Engine& engine = state.engine;
  static_cast<gate::PolypathApi&>(engine) = gate::find_functions(library);
  if (!engine.has_copies() || !engine.has_collectives()) {
    state.why = "the libpolypath beside it is of another version";
    return;
  }
  if (!gate::driver::is_whole()) {
    state.why = "there is no CUDA driver";
    return;
  }
  const RelaxedCapture relaxed;
  state.is_there = engine.context_create(nullptr, 0, &engine.context) == POLYPATH_SUCCESS;
  if (!state.is_there) state.why = engine.last_error();
}

}  // namespace

const Engine* engine(const char** why) noexcept {
  static constinit std::atomic<pid_t> owner{0};
  static constinit std::mutex mutex;
  static auto& state = *new EngineState;
  pid_t no_owner = 0;
  owner.compare_exchange_strong(no_owner, getpid());
  // A child may have been forked while a thread of its parent had the lock.
  const bool is_child = owner.load() != getpid();
  if (!is_child) {
    const std::lock_guard lock(mutex);
    if (!state.is_tried) make(state);
    state.is_tried = true;
  }
  if (why != nullptr)
    *why = is_child ? "the process is a child of one that has polypath" : state.why.c_str();
  return !is_child && state.is_there ? &state.engine : nullptr;
}

}  // namespace polypath::nccl

// Past the shim: these are not the program's copies.
void* polypath::gate::find_in_driver(const char* name) noexcept {
  static void* const library = nccl::open_driver();
  return library != nullptr ? real_dlsym()(library, name) : nullptr;
}
