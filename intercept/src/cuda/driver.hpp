// The driver's own functions, past the shim. Any thread; after the first call for a function
// without locks.
#pragma once

#include <atomic>

#include "cuda/intercepted.hpp"

namespace polypath::preload {

/// The handle of the CUDA driver, if this process has loaded one; from then on it stays loaded.
void* driver_library() noexcept;

/// Any function of the driver; null without a driver, or when it has none of that name.
void* find_in_driver(const char* name) noexcept;

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

/// The driver functions that the shim calls for itself, next to a program's call.
namespace driver {

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

inline constinit Call<decltype(&cuCtxGetFlags)> ctx_get_flags{"cuCtxGetFlags"};
inline constinit Call<CUresult (*)()> ctx_synchronize{"cuCtxSynchronize"};
inline constinit Call<decltype(&cuEventSynchronize)> event_synchronize{"cuEventSynchronize"};
inline constinit Call<decltype(&cuDevicePrimaryCtxGetState)> primary_ctx_get_state{
    "cuDevicePrimaryCtxGetState"};
inline constinit Call<decltype(&cuDevicePrimaryCtxRetain)> primary_ctx_retain{
    "cuDevicePrimaryCtxRetain"};
inline constinit Call<decltype(&cuDevicePrimaryCtxRelease_v2)> primary_ctx_release{
    "cuDevicePrimaryCtxRelease_v2"};
inline constinit Call<decltype(&cuMemGetAddressRange_v2)> mem_get_address_range{
    "cuMemGetAddressRange_v2"};
}  // namespace driver

/// Makes a context current while this lives.
class InContext {
 public:
  explicit InContext(CUcontext context) noexcept {
    if (driver::ctx_get_current(&before_) != CUDA_SUCCESS) return;
    is_changed_ = before_ != context;
    is_there_ = !is_changed_ || driver::ctx_set_current(context) == CUDA_SUCCESS;
  }
  ~InContext() {
    if (is_changed_) driver::ctx_set_current(before_);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  /// False: it is gone, and the calls go to another one.
  [[nodiscard]] bool is_there() const noexcept { return is_there_; }

 private:
  CUcontext before_ = nullptr;
  bool is_changed_ = false;
  bool is_there_ = false;
};

/// The primary context of a GPU, held while this lives; null where the GPU has none now.
class PrimaryContext {
 public:
  explicit PrimaryContext(CUdevice gpu) noexcept : gpu_(gpu) {
    unsigned flags = 0;
    int is_active = 0;
    if (driver::primary_ctx_get_state(gpu, &flags, &is_active) != CUDA_SUCCESS || is_active == 0 ||
        driver::primary_ctx_retain(&context_, gpu) != CUDA_SUCCESS)
      context_ = nullptr;
  }
  ~PrimaryContext() {
    if (context_ != nullptr) driver::primary_ctx_release(gpu_);
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  [[nodiscard]] CUcontext get() const noexcept { return context_; }

 private:
  CUdevice gpu_;
  CUcontext context_ = nullptr;
};

/// While it lives, this thread may make calls that a stream capture elsewhere forbids by its mode:
/// what the shim does next to a program's call must not spoil the program's capture.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept : is_relaxed_(driver::exchange_capture_mode(&mode_) == CUDA_SUCCESS) {}
  ~RelaxedCapture() {
    if (is_relaxed_) driver::exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool is_relaxed_;
};

}  // namespace polypath::preload
