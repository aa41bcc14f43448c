// The driver functions that the shim calls for itself, beside a program's call.
#pragma once

#include "preload/driver.hpp"

namespace polypath::preload::driver {

/// A function of the driver, found at its first call. Any thread.
template <typename Function>
class Call {
 public:
  explicit constexpr Call(const char* name) noexcept : name_(name) {}

  /// NOT_SUPPORTED when there is no driver, or no such function.
  template <typename... Arguments>
  CUresult operator()(Arguments... arguments) noexcept {
    void* known = address_.load(std::memory_order_acquire);
    if (known == nullptr) {
      known = find_in_driver(name_);
      if (known == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      address_.store(known, std::memory_order_release);
    }
    return reinterpret_cast<Function>(known)(arguments...);
  }

 private:
  const char* name_;
  std::atomic<void*> address_{nullptr};
};

inline constinit Call<decltype(&cuCtxGetCurrent)> ctx_get_current{"cuCtxGetCurrent"};
inline constinit Call<decltype(&cuCtxGetDevice)> ctx_get_device{"cuCtxGetDevice"};
inline constinit Call<decltype(&cuCtxGetId)> ctx_get_id{"cuCtxGetId"};
inline constinit Call<decltype(&cuCtxSetCurrent)> ctx_set_current{"cuCtxSetCurrent"};
inline constinit Call<decltype(&cuEventCreate)> event_create{"cuEventCreate"};
inline constinit Call<decltype(&cuEventDestroy_v2)> event_destroy{"cuEventDestroy_v2"};
inline constinit Call<CUresult (*)(float*, CUevent, CUevent)> event_elapsed_time{
    "cuEventElapsedTime"};
inline constinit Call<decltype(&cuEventQuery)> event_query{"cuEventQuery"};
inline constinit Call<decltype(&cuEventRecord)> event_record{"cuEventRecord"};
inline constinit Call<decltype(&cuPointerGetAttribute)> pointer_get_attribute{
    "cuPointerGetAttribute"};
inline constinit Call<decltype(&cuStreamGetCtx)> stream_get_ctx{"cuStreamGetCtx"};
inline constinit Call<decltype(&cuStreamIsCapturing)> stream_is_capturing{"cuStreamIsCapturing"};
inline constinit Call<decltype(&cuStreamSynchronize)> stream_synchronize{"cuStreamSynchronize"};
inline constinit Call<decltype(&cuStreamWaitEvent)> stream_wait_event{"cuStreamWaitEvent"};
inline constinit Call<decltype(&cuThreadExchangeStreamCaptureMode)> exchange_capture_mode{
    "cuThreadExchangeStreamCaptureMode"};

}  // namespace polypath::preload::driver
