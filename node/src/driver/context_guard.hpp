// The calling thread's current CUDA context, put back at the end of a scope.
#pragma once

#include "driver/check.hpp"

namespace polypath {

class ContextGuard {
 public:
  explicit ContextGuard(const CudaDriver& driver) : driver_(driver) {
    POLYPATH_CHECK(driver_, ctx_get_current(&saved_));
    current_ = saved_;
  }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
  ~ContextGuard() {
    if (current_ != saved_) POLYPATH_WARN(driver_, ctx_set_current(saved_));
  }

  /// Makes `context` current; a call to the driver only when it is not already.
  void use(CUcontext context) {
    if (context == current_) return;
    POLYPATH_CHECK(driver_, ctx_set_current(context));
    current_ = context;
  }
  [[nodiscard]] CUcontext saved() const noexcept { return saved_; }

 private:
  const CudaDriver& driver_;
  CUcontext saved_ = nullptr;
  CUcontext current_ = nullptr;
};

}  // namespace polypath
