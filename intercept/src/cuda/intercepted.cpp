#include "cuda/intercepted.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>

#include "gate/loaded_objects.hpp"

#define POLYPATH_INTERCEPTED(name, base, version, stream) extern "C" void polypath_shim_##name();
#include "cuda/intercepted.def"

namespace polypath::preload {
namespace {

constexpr auto none = DefaultStream::none;
constexpr auto legacy = DefaultStream::legacy;
constexpr auto per_thread = DefaultStream::per_thread;

const Replaced table[] = {
#define POLYPATH_INTERCEPTED(name, base, version, stream) \
  {#name, base, version, stream, reinterpret_cast<void*>(&polypath_shim_##name)},
#include "cuda/intercepted.def"
};

/// How many objects the loader has mapped since the process began; 0: it does not say.
unsigned long long objects_loaded_so_far() noexcept {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t bytes, void* user) {
        if (bytes >= offsetof(dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds)
          *static_cast<unsigned long long*>(user) = info->dlpi_adds;
        return 1;  // all objects say the same
      },
      &count);
  return count;
}

}  // namespace

const Replaced& replaced(Symbol symbol) noexcept { return table[index_of(symbol)]; }

const Symbol* find_exported(const char* name) noexcept {
  for (const Symbol& symbol : kSymbols)
    if (std::strcmp(replaced(symbol).name, name) == 0) return &symbol;
  return nullptr;
}

const Symbol* find_versioned(const char* base, int version, cuuint64_t flags) noexcept {
  const bool wants_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const Symbol* match = nullptr;
  for (const Symbol& symbol : kSymbols) {
    const Replaced& entry = replaced(symbol);
    if (std::strcmp(entry.base, base) != 0 || entry.version > version) continue;
    if (entry.default_stream != none && (entry.default_stream == per_thread) != wants_per_thread)
      continue;
    if (match == nullptr || entry.version > replaced(*match).version) match = &symbol;
  }
  return match;
}

void* driver_library() noexcept {
  static constinit std::atomic<void*> library{nullptr};
  static constinit std::atomic<unsigned long long> absent_among{0};
  void* known = library.load(std::memory_order_acquire);
  if (known == nullptr) {
    // A search costs 100 us and more, and a program without GPUs calls MPI often.
    const unsigned long long loaded = objects_loaded_so_far();
    if (loaded != 0 && absent_among.load(std::memory_order_relaxed) == loaded) return nullptr;
    for (const char* name : {"libcuda.so.1", "libcuda.so"})
      if (known == nullptr) known = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (known != nullptr)
      library.store(known, std::memory_order_release);
    else
      absent_among.store(loaded, std::memory_order_relaxed);
  }
  return known;
}

namespace detail {

constinit std::atomic<void*> driver_functions[kSymbolCount]{};

void* find_driver_function(Symbol symbol) noexcept {
  void* const function = find_in_driver(replaced(symbol).name);
  if (function != nullptr)
    driver_functions[index_of(symbol)].store(function, std::memory_order_release);
  return function;
}

CUresult no_function() noexcept {
  return driver_library() != nullptr ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace detail
}  // namespace polypath::preload

void* polypath::gate::find_in_driver(const char* name) noexcept {
  void* const library = preload::driver_library();
  // A driver under another name: what a reference would be bound to without the shim.
  return real_dlsym()(library != nullptr ? library : RTLD_NEXT, name);
}
