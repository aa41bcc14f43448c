#include "gate/lookup.hpp"

#include <dlfcn.h>

#include <atomic>
#include <initializer_list>

namespace polypath::gate {

Dlsym real_dlsym() noexcept {
  static constinit std::atomic<Dlsym> known{nullptr};
  Dlsym function = known.load(std::memory_order_acquire);
  // With a version another replaced dlsym, which has none, is passed over.
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
    if (function != nullptr) return function;
    function = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", version));
    known.store(function, std::memory_order_release);
  }
  return function;
}

}  // namespace polypath::gate
