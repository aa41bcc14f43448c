#include "nccl/cuda.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "gate/lookup.hpp"

namespace polypath {
namespace {

void* open_driver() noexcept {
  const char* name = std::getenv("POLYPATH_DRIVER_LIBRARY");
  if (name == nullptr || *name == '\0') name = "libcuda.so.1";
  return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

// Past the shim: these are no copies of the program's.
void* preload::find_in_driver(const char* name) noexcept {
  static void* const library = open_driver();
  return library != nullptr ? real_dlsym()(library, name) : nullptr;
}

std::optional<unsigned long long> nccl::capture_of(CUstream stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  CUresult result =
      driver::stream_get_capture_info(stream, &status, &number, nullptr, nullptr, nullptr, nullptr);
  if (result == CUDA_ERROR_NOT_SUPPORTED) result = driver::stream_is_capturing(stream, &status);
  if (result != CUDA_SUCCESS) return {};
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return 0;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || number == 0) return {};
  return number;
}

}  // namespace polypath
