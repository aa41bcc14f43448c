#include "nccl/real_library.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <set>

#include "gate/loaded_objects.hpp"
#include "gate/text.hpp"

namespace polypath::nccl {

using gate::defines;
using gate::log_line;
using gate::LogLevel;
using gate::object_of;
using gate::real_dlsym;

namespace {

/// What every NCCL defines, and nothing that only wraps some of its functions.
constexpr const char* kMarks[] = {"ncclGetVersion", "ncclCommInitRank", "ncclGroupEnd"};

std::atomic<const RealNccl*> known{nullptr};
std::recursive_mutex mutex;
std::atomic<int> others{0};
/// The objects that were reported; `mutex` guards it.
std::set<const link_map*>& told_of() {
  static auto& all = *new std::set<const link_map*>;
  return all;
}

/// Another thread may have had the mutex when this process was forked.
[[gnu::constructor]] void prepare_children() {
  pthread_atfork(nullptr, nullptr, [] { new (&mutex) std::recursive_mutex; });
}

bool is_nccl(const link_map* object) noexcept {
  if (object == nullptr || object == own_object()) return false;
  for (const char* const mark : kMarks)
    if (!defines(*object, mark)) return false;
  return true;
}

/// An NCCL among what the handle sees; null otherwise.
const link_map* nccl_in(void* handle) noexcept {
  void* const symbol = handle != nullptr ? real_dlsym()(handle, kMarks[0]) : nullptr;
  const link_map* const object = symbol != nullptr ? object_of(symbol) : nullptr;
  return is_nccl(object) ? object : nullptr;
}

void* open_object(const link_map* object) noexcept {
  // The program itself has no name.
  return dlopen(*object->l_name != '\0' ? object->l_name : nullptr, RTLD_LAZY | RTLD_NOLOAD);
}

/// `flags` of dlopen.
const link_map* open_named(const char* name, int flags) noexcept {
  void* const handle = dlopen(name, flags);
  const link_map* const object = nccl_in(handle);
  if (handle != nullptr && object == nullptr) dlclose(handle);
  return object;
}

const link_map* find_any_loaded() noexcept {
  void* const program = dlopen(nullptr, RTLD_LAZY | RTLD_NOLOAD);
  const link_map* object = nullptr;
  if (program == nullptr || dlinfo(program, RTLD_DI_LINKMAP, &object) != 0) return nullptr;
  for (; object != nullptr; object = object->l_next)
    if (is_nccl(object)) return object;
  return nullptr;
}

const link_map* find_loaded(const void* caller) noexcept {
  if (const link_map* const next = nccl_in(RTLD_NEXT)) return next;
  if (caller != nullptr)
    if (const link_map* const object = object_of(caller); is_nccl(object)) return object;
  for (const char* const name : {"libnccl.so.2", "libnccl.so"})
    if (const link_map* const loaded = open_named(name, RTLD_LAZY | RTLD_NOLOAD)) return loaded;
  return find_any_loaded();
}

const link_map* find_object(const void* caller, bool may_open) noexcept {
  const char* const path = std::getenv("POLYPATH_NCCL_LIBRARY");
  if (path != nullptr && *path != '\0') {
    if (!may_open) {
      if (const link_map* const object = open_named(path, RTLD_LAZY | RTLD_NOLOAD)) return object;
      return nullptr;
    }
    if (const link_map* const object = open_named(path, RTLD_NOW | RTLD_LOCAL)) return object;
    const char* const why = dlerror();
    log_line(LogLevel::error, "POLYPATH_NCCL_LIBRARY names %s, which is no NCCL%s%s", path,
             why != nullptr ? ": " : "", why != nullptr ? why : "");
    return nullptr;
  }
  if (const link_map* const loaded = find_loaded(caller)) return loaded;
  if (!may_open) return nullptr;
  for (const char* const name : {"libnccl.so.2", "libnccl.so"})
    if (const link_map* const object = open_named(name, RTLD_NOW | RTLD_LOCAL)) return object;
  return nullptr;
}

template <typename Function>
void find(const RealNccl& real, Function& function, const char* name) noexcept {
  function = reinterpret_cast<Function>(real.find(name));
}

const RealNccl* bind(const link_map* object) noexcept {
  if (object == nullptr) return nullptr;
  auto* const library = new RealNccl;
  library->object = object;
  library->handle = open_object(object);
  if (library->handle == nullptr) {
    delete library;
    return nullptr;
  }
#define POLYPATH_NCCL_REPLACED(name, arguments) find(*library, library->name, #name);
#include "nccl/functions.def"
  find(*library, library->ncclGetVersion, "ncclGetVersion");
  find(*library, library->ncclCommCount, "ncclCommCount");
  find(*library, library->ncclCommCuDevice, "ncclCommCuDevice");
  find(*library, library->ncclCommUserRank, "ncclCommUserRank");
  if (library->ncclGetVersion == nullptr || library->ncclGetVersion(&library->version) != kSuccess)
    library->version = 0;
  known.store(library, std::memory_order_release);
  return library;
}

}  // namespace

void* RealNccl::find(const char* name) const noexcept {
  void* const symbol = real_dlsym()(handle, name);
  return symbol != nullptr && object_of(symbol) == own_object() ? nullptr : symbol;
}

const link_map* own_object() noexcept {
  static const link_map* const own = object_of(reinterpret_cast<const void*>(&own_object));
  return own;
}

const RealNccl* known_real_library() noexcept { return known.load(std::memory_order_acquire); }

const RealNccl* real_library(const void* caller, bool may_open) noexcept {
  if (const RealNccl* const library = known_real_library()) return library;
  const std::lock_guard lock(mutex);
  if (const RealNccl* const library = known_real_library()) return library;
  return bind(find_object(caller, may_open));
}

const RealNccl* real_library_of(const link_map* object) noexcept {
  if (const RealNccl* const library = known_real_library();
      library != nullptr && library->object == object)
    return library;
  if (!is_nccl(object)) return nullptr;
  const std::lock_guard lock(mutex);
  const RealNccl* library = known_real_library();
  // Calls by name come before: they cannot be told apart later.
  if (library == nullptr) library = bind(find_object(nullptr, false));
  if (library == nullptr) library = bind(object);
  if (library == nullptr || library->object == object) return library;
  if (told_of().insert(object).second) {
    others.fetch_add(1);
    log_line(LogLevel::warn,
             "this process has two NCCLs: calls of %s are looked at, those of %s are not",
             library->object->l_name, object->l_name);
  }
  return nullptr;
}

int other_libraries() noexcept { return others.load(); }

}  // namespace polypath::nccl
