#include "preload/replaced.hpp"

#include <cstring>

#define POLYPATH_REPLACED(name, base, version, stream) extern "C" void polypath_shim_##name();
#include "preload/replaced.def"

namespace polypath::preload {
namespace {

constexpr auto none = DefaultStream::none;
constexpr auto legacy = DefaultStream::legacy;
constexpr auto per_thread = DefaultStream::per_thread;

const Replaced table[] = {
#define POLYPATH_REPLACED(name, base, version, stream) \
  {#name, base, version, stream, reinterpret_cast<void*>(&polypath_shim_##name)},
#include "preload/replaced.def"
};

}  // namespace

const Replaced& replaced(Symbol symbol) noexcept { return table[index_of(symbol)]; }

const Symbol* find_exported(const char* name) noexcept {
  for (const Symbol& symbol : kSymbols)
    if (std::strcmp(replaced(symbol).name, name) == 0) return &symbol;
  return nullptr;
}

const Symbol* find_versioned(const char* base, int version, cuuint64_t flags) noexcept {
  const bool wants_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const Symbol* found = nullptr;
  for (const Symbol& symbol : kSymbols) {
    const Replaced& one = replaced(symbol);
    if (std::strcmp(one.base, base) != 0 || one.version > version) continue;
    if (one.default_stream != none && (one.default_stream == per_thread) != wants_per_thread)
      continue;
    if (found == nullptr || one.version > replaced(*found).version) found = &symbol;
  }
  return found;
}

}  // namespace polypath::preload
