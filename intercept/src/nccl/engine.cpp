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

struct Made {
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

void make(Made& made) noexcept {
  void* const library = gate::open_polypath(gate::Folder::resolved, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    made.why = why != nullptr ? why : "there is no libpolypath beside it";
    return;
  }
  Engine& its = made.engine;
  static_cast<gate::PolypathApi&>(its) = gate::find_functions(library);
  if (!its.has_copies() || !its.has_collectives()) {
    made.why = "the libpolypath beside it is of another version";
    return;
  }
  if (!gate::driver::is_whole()) {
    made.why = "there is no CUDA driver";
    return;
  }
  const RelaxedCapture relaxed;
  made.is_there = its.context_create(nullptr, 0, &its.context) == POLYPATH_SUCCESS;
  if (!made.is_there) made.why = its.last_error();
}

}  // namespace

const Engine* engine(const char** why) noexcept {
  static constinit std::atomic<pid_t> owner{0};
  static constinit std::mutex mutex;
  static auto& made = *new Made;
  pid_t nobody = 0;
  owner.compare_exchange_strong(nobody, getpid());
  // A child may have been forked while a thread of its parent had the lock.
  const bool is_child = owner.load() != getpid();
  if (!is_child) {
    const std::lock_guard lock(mutex);
    if (!made.is_tried) make(made);
    made.is_tried = true;
  }
  if (why != nullptr)
    *why = is_child ? "the process is a child of one that has polypath" : made.why.c_str();
  return !is_child && made.is_there ? &made.engine : nullptr;
}

}  // namespace polypath::nccl

// Past the shim: these are no copies of the program's.
void* polypath::gate::find_in_driver(const char* name) noexcept {
  static void* const library = nccl::open_driver();
  return library != nullptr ? real_dlsym()(library, name) : nullptr;
}
