#include "nccl/engine.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "gate/loaded_objects.hpp"
#include "gate/process.hpp"
#include "gate/text.hpp"

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
            // It may be destroyed, while other threads are in captures that forbid to free memory.
            const RelaxedCapture releasing;
            used->offload_release_context(used->context);
            delete used;
          }};
}

/// A required guarantee fails with a message, not silently.
bool is_asked_for(const char* name) noexcept {
  const char* const text = std::getenv(name);
  if (text != nullptr && std::strcmp(text, "0") != 0 && std::strcmp(text, "1") != 0)
    gate::log_line(gate::LogLevel::error, "%s is '%s': 0 or 1 is wanted; nothing is promised", name,
                   text);
  return gate::is_set_to(name, "1");
}

Settings read() noexcept {
  Settings settings;
  settings.is_on = !gate::is_set_to("POLYPATH_NCCL_COLLECTIVES", "off");
  settings.reproducible = is_asked_for("POLYPATH_REPRODUCIBLE");
  settings.strict = is_asked_for("POLYPATH_STRICT");
  const char* const limit = std::getenv("POLYPATH_NCCL_TIMEOUT_MS");
  const long timeout = limit != nullptr ? std::strtol(limit, nullptr, 10) : 0;
  const bool is_allowed = timeout > 0 && timeout <= long{gate::kMaxTimeoutMs};
  settings.timeout_ms = is_allowed ? static_cast<std::uint32_t>(timeout) : gate::kMaxTimeoutMs;
  return settings;
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

const Settings& settings() noexcept {
  static const Settings settings = read();
  return settings;
}

void report_unguaranteed(const char* what, const char* why) noexcept {
  if (!settings().reproducible) return;
  // Other threads wait here until it is written: a later one must not end the process first.
  [[maybe_unused]] static const bool is_told = [&] {
    gate::log_line(gate::LogLevel::error, "sums of %s are not in rank order: %s%s", what, why,
                   settings().strict ? "; stopped (--strict)" : "");
    if (settings().strict) _exit(kStrictExitCode);
    return true;
  }();
}

}  // namespace polypath::nccl

// Past the shim: these are not the program's copies.
void* polypath::gate::find_in_driver(const char* name) noexcept {
  static void* const library = nccl::open_driver();
  return library != nullptr ? real_dlsym()(library, name) : nullptr;
}
