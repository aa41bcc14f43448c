// The driver's own functions of those that the shim replaces. Any thread; after the first call for
// a function without locks.
#pragma once

#include <atomic>

#include "cuda/intercepted.hpp"
#include "gate/driver.hpp"

namespace polypath::preload {

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
