// What the shim replaces (intercepted.def): as a table to look names up in, and the driver's own
// functions. Any thread; without locks after the first call for a function.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gate/driver.hpp"

// Its renaming macros would hide older functions that the shim replaces too.
#include <cuda.h>
#undef cuDevicePrimaryCtxReset
#undef cuGetProcAddress
#undef cuIpcOpenMemHandle
#undef cuMemcpyBatchAsync

namespace polypath::preload {

using namespace gate;

enum class Symbol : std::uint8_t {
#define POLYPATH_INTERCEPTED(name, base, version, stream) name,
#include "cuda/intercepted.def"
};

inline constexpr Symbol kSymbols[] = {
#define POLYPATH_INTERCEPTED(name, base, version, stream) Symbol::name,
#include "cuda/intercepted.def"
};
inline constexpr std::size_t kSymbolCount = sizeof kSymbols / sizeof *kSymbols;

constexpr std::size_t index_of(Symbol symbol) noexcept { return static_cast<std::size_t>(symbol); }

enum class DefaultStream : std::uint8_t { none, legacy, per_thread };

struct Replaced {
  const char* name;  ///< as the driver exports it
  const char* base;  ///< as cuGetProcAddress knows it
  int version;  ///< the CUDA version from which `base` means this function: 1000 major + 10 minor
  DefaultStream default_stream;
  void* function;  ///< what stands in for it
};

const Replaced& replaced(Symbol symbol) noexcept;

/// Null when there is none.
const Symbol* find_exported(const char* name) noexcept;

/// What cuGetProcAddress means by these arguments; null when that is no function that the shim
/// replaces. The version -1 (the driver's newest, which may be newer than the table) means none
/// here.
const Symbol* find_versioned(const char* base, int version, cuuint64_t flags) noexcept;

/// The handle of the CUDA driver, if this process has loaded one; from then on it stays loaded.
void* driver_library() noexcept;

namespace detail {
extern std::atomic<void*> driver_functions[kSymbolCount];
void* find_driver_function(Symbol symbol) noexcept;
/// Why there is nothing to call: no driver, or one without the function.
CUresult no_function() noexcept;
}  // namespace detail

/// The driver's own function; null without a driver, or when it has none of that name.
inline void* driver_function(Symbol symbol) noexcept {
  void* known = detail::driver_functions[index_of(symbol)].load(std::memory_order_acquire);
  return known != nullptr ? known : detail::find_driver_function(symbol);
}

/// Calls the driver's own function. NOT_INITIALIZED without a driver, NOT_SUPPORTED when it has no
/// such function: a program that was linked to it would not have started, or has asked for it in
/// vain.
template <typename... Arguments>
CUresult call_driver(Symbol symbol, Arguments... arguments) noexcept {
  void* const address = driver_function(symbol);
  if (address == nullptr) return detail::no_function();
  return reinterpret_cast<CUresult (*)(Arguments...)>(address)(arguments...);
}

}  // namespace polypath::preload

/// Defines what stands in for the driver's function of that name:
/// POLYPATH_INTERCEPTOR(name)(arguments) {...}.
///
/// It is exported under a version that is not the default one. So it is bound by programs and
/// libraries that call the function by name (the driver has no symbol versions, and a reference
/// without one takes the first version that there is), but dlsym() does not see it: what a program
/// looks up without the driver being loaded is as absent as ever, and every other lookup is decided
/// in lookup.cpp.
#define POLYPATH_INTERCEPTOR(name)                                        \
  __asm__(".symver polypath_shim_" #name ", " #name "@POLYPATH_PRELOAD"); \
  extern "C" __attribute__((visibility("default"))) CUresult polypath_shim_##name
