#include "gate/driver.hpp"

namespace polypath::gate::driver {
namespace {

CUresult not_supported() noexcept { return CUDA_ERROR_NOT_SUPPORTED; }

}  // namespace

void* detail::find(const char* name, std::atomic<void*>& address) noexcept {
  void* function = find_in_driver(name);
  const bool is_final = function != nullptr || find_in_driver("cuDriverGetVersion") != nullptr;
  if (function == nullptr) function = reinterpret_cast<void*>(&not_supported);
  if (is_final) address.store(function, std::memory_order_release);
  return function;
}

bool is_whole() noexcept {
  constexpr bool required = true;
  constexpr bool optional = false;
  constexpr struct {
    const char* name;
    bool is_required;
  } kFunctions[] = {
#define POLYPATH_DRIVER_FUNCTION(name, symbol, Function, need) {#symbol, need},
#include "gate/driver_functions.def"
  };
  for (const auto& function : kFunctions)
    if (function.is_required && find_in_driver(function.name) == nullptr) return false;
  return true;
}

}  // namespace polypath::gate::driver
