// Turning a CUresult into an exception: one macro for code that may throw, one function for code
// that must not (destructors, clean-up after an error).
#pragma once

#include <string>

#include "base/error.hpp"
#include "driver/cuda_driver.hpp"

namespace polypath {

/// "CUDA_ERROR_INVALID_VALUE (1)".
std::string describe(const CudaDriver& driver, CUresult result);

/// Throws DriverError: "cuMemAlloc_v2 failed: out of memory, NAME (code) at file:line", where
/// `call` begins with the member of CudaDriver.
[[noreturn]] void throw_driver_error(const CudaDriver& driver, CUresult result, const char* call,
                                     const char* file, int line);

/// Logs a failed call at level warn; for destructors.
void warn_driver_error(const CudaDriver& driver, CUresult result, const char* call) noexcept;

}  // namespace polypath

/// POLYPATH_CHECK(driver, event_record(event, stream)): calls it, throws DriverError when it fails.
#define POLYPATH_CHECK(driver, call)                                                        \
  do {                                                                                      \
    const CUresult polypath_result = (driver).call;                                         \
    if (polypath_result != CUDA_SUCCESS) [[unlikely]]                                       \
      ::polypath::throw_driver_error((driver), polypath_result, #call, __FILE__, __LINE__); \
  } while (false)

/// The same where nothing may be thrown: the failure is logged.
#define POLYPATH_WARN(driver, call)                                    \
  do {                                                                 \
    const CUresult polypath_result = (driver).call;                    \
    if (polypath_result != CUDA_SUCCESS) [[unlikely]]                  \
      ::polypath::warn_driver_error((driver), polypath_result, #call); \
  } while (false)
