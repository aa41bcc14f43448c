// The frame of every C function: the driver's lock, and failures turned into codes. Brings all
// parts of the driver.
#pragma once

#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

#include "driver.hpp"
#include "failure.hpp"
#include "instance.hpp"

namespace polypath::sim {

/// Runs `body` and returns its CUresult; CUDA_SUCCESS when it returns nothing.
template <typename Body, typename... Arguments>
CUresult guarded(Body&& body, Arguments&... arguments) noexcept {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Body, Arguments&...>>) {
      body(arguments...);
      return CUDA_SUCCESS;
    } else {
      return body(arguments...);
    }
  } catch (const Failure& failure) {
    return failure.code;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

/// Runs `body(driver)` under the driver's lock.
template <typename Body>
CUresult call(Body&& body) noexcept {
  return guarded([&] {
    Driver& driver = driver_instance();
    const std::lock_guard lock(driver.mutex);
    return body(driver);
  });
}

/// Failure INVALID_VALUE for a null result address.
template <typename T>
T& out(T* result) {
  require(result != nullptr, CUDA_ERROR_INVALID_VALUE);
  return *result;
}

/// What stream 0 means to the forms of the per-thread default stream.
inline CUstream per_thread(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

}  // namespace polypath::sim
