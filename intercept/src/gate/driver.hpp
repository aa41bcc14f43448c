// The functions of the CUDA driver that an interceptor calls for itself, next to a program's call,
// past every library that replaces them; and scopes for such calls. Any thread; without locks after
// the first call of a function.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>

namespace polypath::gate {

/// Any function of the driver; null without a driver, or when it has none of that name. Each
/// interceptor defines it: which driver it means.
void* find_in_driver(const char* name) noexcept;

namespace driver {

namespace detail {
inline CUresult not_supported() noexcept { return CUDA_ERROR_NOT_SUPPORTED; }
/// Keeps the answer where there is a driver; a function that says NOT_SUPPORTED for one that it has
/// not.
inline void* find(const char* name, std::atomic<void*>& address) noexcept {
  void* function = find_in_driver(name);
  const bool is_final = function != nullptr || find_in_driver("cuDriverGetVersion") != nullptr;
  if (function == nullptr) function = reinterpret_cast<void*>(&not_supported);
  if (is_final) address.store(function, std::memory_order_release);
  return function;
}
}  // namespace detail

/// A function of the driver, found at its first call.
template <typename Function>
class Call {
 public:
  explicit constexpr Call(const char* name) noexcept : name_(name) {}

  /// NOT_SUPPORTED when there is no driver, or no such function.
  template <typename... Arguments>
  CUresult operator()(Arguments... arguments) noexcept {
    void* known = address_.load(std::memory_order_acquire);
    if (known == nullptr) [[unlikely]]
      known = detail::find(name_, address_);
    return reinterpret_cast<Function>(known)(arguments...);
  }

 private:
  const char* name_;
  std::atomic<void*> address_{nullptr};
};

#define POLYPATH_DRIVER_FUNCTION(name, symbol, Function, need) \
  inline constinit Call<Function> name{#symbol};
#include "gate/driver_functions.def"

/// Whether there is a driver, with all functions that are not optional.
inline bool is_whole() noexcept {
  constexpr bool required = true;
  constexpr bool optional = false;
  constexpr struct {
    const char* name;
    bool is_required;
  } kFunctions[] = {
#define POLYPATH_DRIVER_FUNCTION(name, symbol, Function, need) {#symbol, need},
#include "gate/driver_functions.def"
  };
  for (const auto& function : kFunctions)
    if (function.is_required && find_in_driver(function.name) == nullptr) return false;
  return true;
}

}  // namespace driver

/// False where the driver does not know the address, or memory has no such attribute.
template <typename Value>
bool ask(CUpointer_attribute attribute, CUdeviceptr address, Value* value) noexcept {
  return driver::pointer_get_attribute(static_cast<void*>(value), attribute, address) ==
         CUDA_SUCCESS;
}

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

}  // namespace polypath::gate
