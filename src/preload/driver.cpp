#include "preload/driver.hpp"

#include <dlfcn.h>

#include "preload/dlsym.hpp"

namespace polypath::preload {

void* driver_library() noexcept {
  static constinit std::atomic<void*> library{nullptr};
  void* known = library.load(std::memory_order_acquire);
  if (known == nullptr) {
    for (const char* name : {"libcuda.so.1", "libcuda.so"})
      if (known == nullptr) known = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (known != nullptr) library.store(known, std::memory_order_release);
  }
  return known;
}

void* find_in_driver(const char* name) noexcept {
  void* const library = driver_library();
  // A driver under another name: what a reference would be bound to without the shim.
  return real_dlsym()(library != nullptr ? library : RTLD_NEXT, name);
}

namespace detail {

constinit std::atomic<void*> driver_functions[kSymbolCount]{};

void* find_driver_function(Symbol symbol) noexcept {
  void* const found = find_in_driver(replaced(symbol).name);
  if (found != nullptr) driver_functions[index_of(symbol)].store(found, std::memory_order_release);
  return found;
}

CUresult no_function() noexcept {
  return driver_library() != nullptr ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace detail
}  // namespace polypath::preload
