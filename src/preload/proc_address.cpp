// cuGetProcAddress: the driver answers; where the answer is a function that the shim replaces, the program is
// given what stands in for it.
#include <cstring>

#include "preload/driver.hpp"
#include "preload/loaded_objects.hpp"
#include "preload/process.hpp"
#include "preload/statistics.hpp"

namespace polypath::preload {
namespace {

/// What the driver's answer is. A driver may also hand out functions that it does not export: those are known
/// by name and version, as far as versions were known when this was built.
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
  if (symbol == nullptr || is_polypath(object_of(caller))) return;
  *function = replaced(*symbol).function;
}

}  // namespace
}  // namespace polypath::preload

using namespace polypath::preload;

POLYPATH_REPLACEMENT(cuGetProcAddress)
(const char* name, void** function, int version, cuuint64_t flags) {
  begin_process();
  count_call(Symbol::cuGetProcAddress, 0);
  const CUresult result = call_driver(Symbol::cuGetProcAddress, name, function, version, flags);
  if (result == CUDA_SUCCESS) replace(name, function, version, flags, __builtin_return_address(0));
  return result;
}

POLYPATH_REPLACEMENT(cuGetProcAddress_v2)
(const char* name, void** function, int version, cuuint64_t flags,
 CUdriverProcAddressQueryResult* status) {
  begin_process();
  count_call(Symbol::cuGetProcAddress_v2, 0);
  const CUresult result =
      call_driver(Symbol::cuGetProcAddress_v2, name, function, version, flags, status);
  if (result == CUDA_SUCCESS) replace(name, function, version, flags, __builtin_return_address(0));
  return result;
}
