#include "devices.hpp"

#include <cudaTypedefs.h>

#include <array>
#include <mutex>

#include "cudart_standin.h"
#include "driver_entries.hpp"

namespace polypath::cudart_standin {
namespace {

constexpr int kMaxDevices = 64;

thread_local int current_device = 0;

int initialise() {
  static const int result = call(driver_function<PFN_cuInit_v2000>("cuInit", 2000), 0U);
  return result;
}

}  // namespace

int primary_context(int device, CUcontext& context) {
  static std::mutex mutex;
  static std::array<CUcontext, kMaxDevices> contexts{};
  if (const int failed = initialise()) return failed;
  if (device < 0 || device >= kMaxDevices) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex);
  CUcontext& known = contexts[static_cast<std::size_t>(device)];
  if (known == nullptr) {
    const auto retain =
        driver_function<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain", 7000);
    if (const int failed = call(retain, &known, device)) return failed;
  }
  context = known;
  return CUDA_SUCCESS;
}

int use_current_device() {
  CUcontext context = nullptr;
  if (const int failed = primary_context(current_device, context)) return failed;
  return call(driver_function<PFN_cuCtxSetCurrent_v4000>("cuCtxSetCurrent", 4000), context);
}

}  // namespace polypath::cudart_standin

using namespace polypath::cudart_standin;

int cudaGetDeviceCount(int* count) {
  if (const int failed = initialise()) return failed;
  return call(driver_function<PFN_cuDeviceGetCount_v2000>("cuDeviceGetCount", 2000), count);
}

int cudaSetDevice(int device) {
  CUcontext context = nullptr;
  if (const int failed = primary_context(device, context)) return failed;
  current_device = device;
  return use_current_device();
}

int cudaGetDevice(int* device) {
  *device = current_device;
  return CUDA_SUCCESS;
}

int cudaDeviceSynchronize() {
  if (const int failed = use_current_device()) return failed;
  return call(driver_function<PFN_cuCtxSynchronize_v2000>("cuCtxSynchronize", 2000));
}
