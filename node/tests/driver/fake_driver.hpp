// A table of a few C functions, for tests that need a driver but no device.
#pragma once

#include <memory>

#include "driver/cuda_driver.hpp"

namespace polypath::test {

inline int executed_queries = 0;  ///< how often stream_query was carried out

inline CUresult fake_stream_query(CUstream) {
  ++executed_queries;
  return CUDA_ERROR_NOT_READY;
}

inline CUresult fake_device_get_count(int* count) {
  *count = 4;
  return CUDA_SUCCESS;
}

inline CUresult fake_get_error_name(CUresult result, const char** name) {
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return CUDA_ERROR_INVALID_VALUE;
  *name = "CUDA_ERROR_OUT_OF_MEMORY";
  return CUDA_SUCCESS;
}

inline CUresult fake_get_error_string(CUresult result, const char** text) {
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return CUDA_ERROR_INVALID_VALUE;
  *text = "out of memory";
  return CUDA_SUCCESS;
}

/// stream_query, device_get_count, get_error_name and get_error_string; all else is null.
inline std::shared_ptr<const CudaDriver> fake_driver() {
  auto table = std::make_shared<CudaDriver>();
  table->stream_query = fake_stream_query;
  table->device_get_count = fake_device_get_count;
  table->get_error_name = fake_get_error_name;
  table->get_error_string = fake_get_error_string;
  executed_queries = 0;
  return table;
}

}  // namespace polypath::test
