// What functions that are passed on as they are jump to (trampolines.S), and
// what dlsym() answers under this library, where it is preloaded: to programs that look up one of
// the replaced functions in the NCCL after it, what stands in for that; names that
// this library has and the real one has not, are not there; everything else, other NCCLs and names
// that no object here knows among it, is the loader's own answer (dlsym.S of the shim).
#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "gate/loaded_objects.hpp"
#include "nccl/engine.hpp"
#include "nccl/real_library.hpp"

using namespace polypath::nccl;
using polypath::gate::is_polypath;
using polypath::gate::object_of;

using polypath::gate::Dlsym;
using polypath::gate::real_dlsym;

extern "C" {

/// Where dlsym.S jumps to: the next library's, as that of the shim.
[[gnu::visibility("hidden")]] Dlsym polypath_nccl_real_dlsym = nullptr;
[[gnu::visibility("hidden")]] void* polypath_nccl_lookup(void* handle, const char* name,
                                                         void* caller) noexcept;

[[gnu::visibility("hidden")]] void* polypath_nccl_find(void* slot, const void* caller) noexcept;
}

namespace {

/// What trampolines.S has of each of them.
struct Slot {
  void* target;
  const char* name;
  std::size_t kind;
};
inline constexpr std::size_t kStatus = 0;
inline constexpr std::size_t kText = 1;
inline constexpr std::size_t kSums = 2;

int no_function() noexcept { return kInvalidUsage; }
const char* no_text() noexcept { return "NCCL's library has no such function, or there is none"; }

}  // namespace

#define POLYPATH_NCCL_status(name)
#define POLYPATH_NCCL_text(name)
#define POLYPATH_NCCL_sums(name) extern "C" void name();
#define POLYPATH_NCCL_PASSED(name, kind) POLYPATH_NCCL_##kind(name)
#include "nccl/functions.def"
#undef POLYPATH_NCCL_sums

namespace {

struct Replaced {
  const char* name;
  void* function;
};
const Replaced replaced[] = {
#define POLYPATH_NCCL_REPLACED(name, arguments) {#name, reinterpret_cast<void*>(&::name)},
#include "nccl/functions.def"
};

/// Functions that sum in NCCL's order: their trampolines say so.
const Replaced sums[] = {
#define POLYPATH_NCCL_sums(name) {#name, reinterpret_cast<void*>(&::name)},
#define POLYPATH_NCCL_PASSED(name, kind) POLYPATH_NCCL_##kind(name)
#include "nccl/functions.def"
};

void* find_replaced(const char* name) noexcept {
  if (settings().reproducible)
    for (const Replaced& entry : sums)
      if (std::strcmp(entry.name, name) == 0) return entry.function;
  for (const Replaced& entry : replaced)
    if (std::strcmp(entry.name, name) == 0) return entry.function;
  return nullptr;
}

/// A name that no object has, in a handle that all processes have: the loader then keeps an error,
/// and dlsym.S takes this answer for "none".
void* none(const char* name) noexcept {
  constexpr std::uintptr_t kNone = 1;
  real_dlsym()(RTLD_NEXT, name);
  return reinterpret_cast<void*>(kNone);
}

}  // namespace

void* polypath_nccl_lookup(void* handle, const char* name, void* caller) noexcept {
  if (__atomic_load_n(&polypath_nccl_real_dlsym, __ATOMIC_ACQUIRE) == nullptr)
    __atomic_store_n(&polypath_nccl_real_dlsym,
                     reinterpret_cast<Dlsym>(real_dlsym()(RTLD_NEXT, "dlsym")), __ATOMIC_RELEASE);
  // Nearly all names are others. What RTLD_NEXT means depends on the caller.
  if (name == nullptr || handle == RTLD_NEXT) return nullptr;
  if (std::strncmp(name + (*name == 'p' ? 1 : 0), "nccl", 4) != 0) return nullptr;
  if (is_polypath(object_of(caller))) return nullptr;
  void* const symbol = polypath_nccl_real_dlsym(handle, name);
  const link_map* const object = symbol != nullptr ? object_of(symbol) : nullptr;
  if (object == nullptr || object == own_object()) {
    // A handle of this library finds the functions of the NCCL after it.
    const bool is_own = real_dlsym()(handle, "polypath_nccl_report") != nullptr;
    if (object == nullptr && (handle == RTLD_DEFAULT || !is_own)) return nullptr;
    const RealNccl* const real = real_library(caller, handle != RTLD_DEFAULT);
    void* const behind = real != nullptr ? real->find(name) : nullptr;
    if (behind == nullptr) return none(name);
    return symbol != nullptr ? symbol : behind;
  }
  void* const function = find_replaced(name);
  return function != nullptr && real_library_of(object) != nullptr ? function : nullptr;
}

/// Called by the first call of each function; kept when the library has it.
void* polypath_nccl_find(void* asked, const void* caller) noexcept {
  auto* const slot = static_cast<Slot*>(asked);
  const RealNccl* const real = real_library(caller, true);
  void* const symbol = real != nullptr ? real->find(slot->name) : nullptr;
  if (slot->kind == kSums && symbol != nullptr)
    report_unguaranteed(slot->name, "it is not taken over");
  if (symbol == nullptr)
    return slot->kind == kText ? reinterpret_cast<void*>(&no_text)
                               : reinterpret_cast<void*>(&no_function);
  __atomic_store_n(&slot->target, symbol, __ATOMIC_RELEASE);
  return symbol;
}
