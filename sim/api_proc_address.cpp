// cuGetProcAddress: entry points by name and CUDA version, as libcudart asks for them.
//
// A name is known without its suffix (cuMemAlloc, not cuMemAlloc_v2). Of its versions the newest one that
// the wanted CUDA version already had is given out; a per-thread variant only if the flags ask for one.
#include <bit>
#include <string_view>
#include <type_traits>

#include "call.hpp"

using namespace polypath::sim;

namespace {

struct Entry {
  std::string_view name;
  void* function;
  int version;
  bool is_per_thread;
};

// The header says which versions there are, and their types.
#define POLYPATH_PROC(name, suffix, version, thread) \
  static_assert(std::is_same_v<decltype(&name##suffix), PFN_##name##_v##version##thread>);
#include "proc_addresses.def"

const Entry kEntries[] = {
#define POLYPATH_PROC(name, suffix, version, thread) \
  {#name, std::bit_cast<void*>(&name##suffix), version, sizeof(#thread) > 1},
#include "proc_addresses.def"
};

constexpr cuuint64_t kFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

CUdriverProcAddressQueryResult find(std::string_view name, int version, bool wants_per_thread,
                                    void*& function) {
  const Entry* best = nullptr;
  bool is_known = false;
  for (const Entry& entry : kEntries) {
    if (entry.name != name || (entry.is_per_thread && !wants_per_thread)) continue;
    is_known = true;
    if (entry.version > version) continue;
    // A per-thread variant comes before any other.
    if (best == nullptr || entry.is_per_thread > best->is_per_thread ||
        (entry.is_per_thread == best->is_per_thread && entry.version > best->version))
      best = &entry;
  }
  function = best == nullptr ? nullptr : best->function;
  if (best != nullptr) return CU_GET_PROC_ADDRESS_SUCCESS;
  return is_known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

/// The status is in the result as well: NOT_FOUND but for SUCCESS.
CUresult get(const char* name, void** function, int version, cuuint64_t flags,
             CUdriverProcAddressQueryResult& status) {
  return guarded([&] {
    require(name != nullptr && (flags & ~kFlags) == 0 && flags != kFlags, CUDA_ERROR_INVALID_VALUE);
    status = find(name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0,
                  out(function));
    require(status == CU_GET_PROC_ADDRESS_SUCCESS, CUDA_ERROR_NOT_FOUND);
  });
}

}  // namespace

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  CUdriverProcAddressQueryResult status{};
  return get(symbol, function, version, flags, status);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  CUdriverProcAddressQueryResult ignored{};
  return get(symbol, function, version, flags, status == nullptr ? ignored : *status);
}
