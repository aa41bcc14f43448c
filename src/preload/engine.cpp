#include "preload/engine.hpp"

#include <dlfcn.h>
#include <limits.h>

#include <cstdio>
#include <cstring>

#include "preload/dlsym.hpp"
#include "preload/hand_over.hpp"
#include "preload/log.hpp"
#include "preload/process.hpp"
#include "preload/relaxed_capture.hpp"

namespace polypath::preload {

constinit thread_local int InsideEngine::depth = 0;

namespace {

enum class State : std::uint8_t { untried, starting, ready, absent };

constinit std::atomic<State> state{State::untried};
constinit Engine engine{};

/// Opens libpolypath beside this library. An installed tree has it under its soname, a wheel under its plain
/// name.
void* open_library() noexcept {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&open_library), &info) == 0) return nullptr;
  const char* const slash = std::strrchr(info.dli_fname, '/');
  const int folder = slash != nullptr ? static_cast<int>(slash - info.dli_fname) : 1;
  for (const char* name : {"libpolypath.so.0", "libpolypath.so"}) {
    char path[PATH_MAX];
    const int length = std::snprintf(path, sizeof path, "%.*s/%s", folder,
                                     slash != nullptr ? info.dli_fname : ".", name);
    if (length < 0 || static_cast<std::size_t>(length) >= sizeof path) continue;
    if (void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

template <typename Function>
bool find(void* library, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(real_dlsym()(library, name));
  return function != nullptr;
}

bool find_functions(void* library) noexcept {
  return find(library, "polypath_context_create", engine.context_create) &&
         find(library, "polypath_smallest_split", engine.smallest_split) &&
         find(library, "polypath_try_copy_async", engine.try_copy_async) &&
         find(library, "polypath_last_error", engine.last_error) &&
         find(library, "polypath_last_cuda_result", engine.last_cuda_result) &&
         find(library, "polypath_memory_exported", engine.memory_exported) &&
         find(library, "polypath_memory_imported", engine.memory_imported) &&
         find(library, "polypath_memory_closed", engine.memory_closed) &&
         find(library, "polypath_counters", engine.counters) &&
         find(library, "polypath_report", engine.report) &&
         find(library, "polypath_free", engine.free);
}

/// No GPU is a normal answer; a setting that is not allowed is the user's mistake.
void say_why(polypath_status status) noexcept {
  log_line(status == POLYPATH_NO_DEVICE ? LogLevel::info : LogLevel::warn,
           "copies stay the driver's: %s", engine.last_error());
}

bool make_engine() noexcept {
  void* const library = open_library();
  if (library == nullptr || !find_functions(library)) {
    const char* const why = dlerror();
    log_line(LogLevel::info, "copies stay the driver's: %s",
             why != nullptr ? why : "no libpolypath");
    return false;
  }
  report_before_later_exits();
  // Made in the middle of a program's call, perhaps while one of its streams is in capture.
  const RelaxedCapture relaxed;
  polypath_status status = engine.context_create(nullptr, 0, &engine.context);
  if (status == POLYPATH_SUCCESS)
    status = engine.smallest_split(engine.context, &engine.thresholds);
  if (status != POLYPATH_SUCCESS) say_why(status);
  return status == POLYPATH_SUCCESS;
}

}  // namespace

const Engine* find_engine() noexcept {
  return state.load(std::memory_order_acquire) == State::ready ? &engine : nullptr;
}

const Engine* start_engine() noexcept {
  if (InsideEngine::depth > 0) return nullptr;
  State seen = state.load(std::memory_order_acquire);
  if (seen == State::untried &&
      state.compare_exchange_strong(seen, State::starting, std::memory_order_acq_rel)) {
    const InsideEngine inside;
    begin_process();
    const bool is_made = make_engine();
    set_thresholds(is_made ? &engine.thresholds : nullptr);
    seen = is_made ? State::ready : State::absent;
    state.store(seen, std::memory_order_release);
  }
  return seen == State::ready ? &engine : nullptr;
}

void forget_engine() noexcept {
  if (state.load(std::memory_order_relaxed) == State::untried) return;
  state.store(State::absent, std::memory_order_relaxed);
  set_thresholds(nullptr);
}

}  // namespace polypath::preload
