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

/// Whether `one` is a better answer than `other` for a caller that does, or does not, want the per-thread
/// default stream.
bool is_better(const Replaced& one, const Replaced& other, bool wants_per_thread) noexcept {
  const bool is_per_thread = one.default_stream == per_thread;
  if (is_per_thread != (other.default_stream == per_thread))
    return is_per_thread == wants_per_thread;
  return one.version > other.version;
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
  const Symbol* found = nullptr;
  for (const Symbol& symbol : kSymbols) {
    const Replaced& one = replaced(symbol);
    if (std::strcmp(one.base, base) != 0 || one.version > version) continue;
    if (one.default_stream == per_thread && !wants_per_thread) continue;
    if (found == nullptr || is_better(one, replaced(*found), wants_per_thread)) found = &symbol;
  }
  return found;
}

}  // namespace polypath::preload
