#include "preload/default_stream.hpp"

#include "preload/driver_calls.hpp"

namespace polypath::preload {
namespace {

/// Lets the default stream of `later` wait for what that of `earlier` was given so far. Leaves another context
/// current.
CUresult order(CUcontext earlier, CUcontext later) noexcept {
  CUevent event = nullptr;
  CUresult result = driver::ctx_set_current(earlier);
  if (result == CUDA_SUCCESS) result = driver::event_create(&event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = driver::event_record(event, CU_STREAM_LEGACY);
  if (result == CUDA_SUCCESS) result = driver::ctx_set_current(later);
  if (result == CUDA_SUCCESS) result = driver::stream_wait_event(CU_STREAM_LEGACY, event, 0);
  // A wait holds the record that it saw.
  if (event != nullptr) driver::event_destroy(event);
  return result;
}

/// The GPU whose memory it is, as the driver says; -1: the host's, or unknown.
int gpu_of(CUdeviceptr address) noexcept {
  unsigned int type = CU_MEMORYTYPE_HOST;
  int gpu = -1;
  const bool is_device =
      driver::pointer_get_attribute(static_cast<void*>(&type), CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    address) == CUDA_SUCCESS &&
      type == CU_MEMORYTYPE_DEVICE &&
      driver::pointer_get_attribute(static_cast<void*>(&gpu), CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    address) == CUDA_SUCCESS;
  return is_device ? gpu : -1;
}

}  // namespace

bool DefaultStreamOrder::add_other_context(CUdeviceptr address) noexcept {
  CUcontext context = nullptr;
  if (driver::pointer_get_attribute(static_cast<void*>(&context), CU_POINTER_ATTRIBUTE_CONTEXT,
                                    address) != CUDA_SUCCESS ||
      context == nullptr)
    return false;
  others_[count_++] = context;
  return true;
}

bool DefaultStreamOrder::begin(const Copy& copy) noexcept {
  CUcontext current = nullptr;
  CUdevice here = 0;
  if (driver::ctx_get_current(&current) != CUDA_SUCCESS || current == nullptr ||
      driver::ctx_get_device(&here) != CUDA_SUCCESS)
    return false;
  const int to = gpu_of(copy.dst);
  const int from = gpu_of(copy.src);
  if (to < 0 || from < 0 || to == from) return true;
  if ((to != here && !add_other_context(copy.dst)) ||
      (from != here && !add_other_context(copy.src)))
    return false;
  bool is_ordered = true;
  for (std::size_t i = 0; i < count_; ++i)
    is_ordered = is_ordered && order(others_[i], current) == CUDA_SUCCESS;
  return driver::ctx_set_current(current) == CUDA_SUCCESS && is_ordered;
}

CUresult DefaultStreamOrder::end() noexcept {
  if (count_ == 0) return CUDA_SUCCESS;
  CUcontext current = nullptr;
  CUresult result = driver::ctx_get_current(&current);
  for (std::size_t i = 0; i < count_ && result == CUDA_SUCCESS; ++i)
    result = order(current, others_[i]);
  const CUresult restored = driver::ctx_set_current(current);
  return result != CUDA_SUCCESS ? result : restored;
}

}  // namespace polypath::preload
