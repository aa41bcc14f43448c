// What dlsym() and cuGetProcAddress answer under the shim: to programs that look up one of the
// replaced functions, and would be given the driver's, what stands in for it; everything else is
// the loader's own answer (dlsym.S), and the driver's.
//
// "Would be given the driver's" is found out without the caller's identity, which only a call from
// the caller itself has. Where that cannot be certain the answer is the loader's: that program's
// copies stay native.
#include <dlfcn.h>

#include <cstring>

#include "cuda/engine.hpp"
#include "cuda/intercepted.hpp"
#include "cuda/sequences.hpp"
#include "cuda/statistics.hpp"
#include "gate/loaded_objects.hpp"

extern "C" {

/// Where dlsym.S jumps to; set by polypath_shim_lookup.
[[gnu::visibility("hidden")]] polypath::preload::Dlsym polypath_shim_real_dlsym = nullptr;

[[gnu::visibility("hidden")]] void* polypath_shim_lookup(void* handle, const char* name,
                                                         void* caller) noexcept;
}

namespace polypath::preload {
namespace {

/// A library that the process has not loaded at its start also sees what it was loaded with.
void* find_beside(const link_map* object, const char* name) noexcept {
  if (object == nullptr || *object->l_name == '\0') return nullptr;
  void* const handle = dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* const symbol = real_dlsym()(handle, name);
  dlclose(handle);
  return symbol;
}

/// True when names that no other object defines are found in the driver by all.
bool is_global(const link_map* driver) noexcept {
  void* const symbol = real_dlsym()(RTLD_DEFAULT, "cuDriverGetVersion");
  return symbol != nullptr && object_of(symbol) == driver;
}

/// True when RTLD_NEXT of `caller` means the driver's function. Only for objects that were loaded
/// at the process's start: the others have an order of their own.
bool is_drivers_next(const link_map* caller, const char* name, void* drivers) noexcept {
  const link_map* const driver = object_of(drivers);
  bool is_after = false;
  for (const link_map* object : StartupObjects()) {
    if (is_after && object == driver) return is_global(driver);
    if (is_after && defines(*object, name)) return false;
    is_after = is_after || object == caller;
  }
  // The driver came in later: where all see it, or not.
  return is_after && real_dlsym()(RTLD_DEFAULT, name) == drivers;
}

bool is_drivers(void* handle, const char* name, const link_map* caller, void* drivers) noexcept {
  if (handle == RTLD_NEXT) return is_drivers_next(caller, name, drivers);
  void* symbol = real_dlsym()(handle, name);
  if (symbol == nullptr && handle == RTLD_DEFAULT) symbol = find_beside(caller, name);
  return symbol == drivers;
}

/// What stands in for the driver's function of that name; null when the loader's answer is right.
void* find_replacement(void* handle, const char* name, void* caller) noexcept {
  const Symbol* const symbol = find_exported(name);
  if (symbol == nullptr || driver_library() == nullptr) return nullptr;
  void* const drivers = driver_function(*symbol);
  const link_map* const object = object_of(caller);
  if (drivers == nullptr || is_polypath(object)) return nullptr;
  if (!is_drivers(handle, name, object, drivers)) return nullptr;
  return replaced(*symbol).function;
}

/// What the driver's answer is. A driver may also hand out functions that it does not export: those
/// are known by name and version, as far as versions were known when this was built.
const Symbol* identify(const char* name, int version, cuuint64_t flags, void* answer) noexcept {
  const Symbol* const named = find_versioned(name, version, flags);
  if (named != nullptr && driver_function(*named) == answer) return named;
  for (const Symbol& symbol : kSymbols)
    if (driver_function(symbol) == answer) return &symbol;
  return version <= CUDA_VERSION ? named : nullptr;
}

void replace(const char* name, void** function, int version, cuuint64_t flags,
             const void* caller) noexcept {
  if (name == nullptr || function == nullptr || *function == nullptr) return;
  const Symbol* const symbol = identify(name, version, flags, *function);
  if (symbol == nullptr) return note_lookup(name, caller);
  if (is_polypath(object_of(caller))) return;
  *function = replaced(*symbol).function;
}

}  // namespace
}  // namespace polypath::preload

void* polypath_shim_lookup(void* handle, const char* name, void* caller) noexcept {
  if (__atomic_load_n(&polypath_shim_real_dlsym, __ATOMIC_RELAXED) == nullptr)
    __atomic_store_n(&polypath_shim_real_dlsym, polypath::preload::real_dlsym(), __ATOMIC_RELEASE);
  // Nearly all names are others: not a look more at them.
  if (name == nullptr || name[0] != 'c' || name[1] != 'u') return nullptr;
  void* const replacement = polypath::preload::find_replacement(handle, name, caller);
  if (replacement == nullptr) polypath::preload::note_lookup(name, caller);
  return replacement;
}

using namespace polypath::preload;

POLYPATH_INTERCEPTOR(cuGetProcAddress)
(const char* name, void** function, int version, cuuint64_t flags) {
  init_process();
  count_call(Symbol::cuGetProcAddress, 0);
  const CUresult result = call_driver(Symbol::cuGetProcAddress, name, function, version, flags);
  if (result == CUDA_SUCCESS) replace(name, function, version, flags, __builtin_return_address(0));
  return result;
}

POLYPATH_INTERCEPTOR(cuGetProcAddress_v2)
(const char* name, void** function, int version, cuuint64_t flags,
 CUdriverProcAddressQueryResult* status) {
  init_process();
  count_call(Symbol::cuGetProcAddress_v2, 0);
  const CUresult result =
      call_driver(Symbol::cuGetProcAddress_v2, name, function, version, flags, status);
  if (result == CUDA_SUCCESS) replace(name, function, version, flags, __builtin_return_address(0));
  return result;
}
