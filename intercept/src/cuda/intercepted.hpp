// What the shim replaces (intercepted.def), as a table to look names up in.
#pragma once

#include <cstddef>
#include <cstdint>

// Its renaming macros would hide older functions that the shim replaces too.
#include <cuda.h>
#undef cuDevicePrimaryCtxReset
#undef cuGetProcAddress
#undef cuIpcOpenMemHandle
#undef cuMemcpyBatchAsync

namespace polypath::preload {

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
