// What runs do after a failure, so that their callers' streams wait for all that was issued.
#pragma once

#include <exception>

#include "base/log.hpp"
#include "driver/check.hpp"

namespace polypath {

/// Whether the attempt succeeds, at the first or the second time: a single call of the driver may
/// fail for a reason of its own.
template <typename Attempt>
bool try_twice(Attempt&& attempt) {
  return attempt() || attempt();
}

/// Whether `body` returns, at the first or the second time. What it throws is logged.
template <typename Body>
bool succeeds_after_failure(Body&& body) noexcept {
  return try_twice([&] {
    try {
      body();
      return true;
    } catch (const std::exception& error) {
      log_info("after a failed run: {}", error.what());
      return false;
    }
  });
}

/// What queries of the stream answer each time, where that is an error: its context runs nothing
/// any more. Otherwise CUDA_SUCCESS.
inline CUresult persistent_error(const CudaDriver& driver, CUstream stream) noexcept {
  CUresult result = CUDA_SUCCESS;
  const bool is_well = try_twice([&] {
    result = driver.stream_query(stream);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY;
  });
  return is_well ? CUDA_SUCCESS : result;
}

/// Whether work of the stream may still run.
inline bool may_be_under_way(const CudaDriver& driver, CUstream stream) noexcept {
  return persistent_error(driver, stream) == CUDA_SUCCESS &&
         driver.stream_query(stream) != CUDA_SUCCESS;
}

}  // namespace polypath
