#include "driver/resources.hpp"

namespace polypath {

CurrentContext::CurrentContext(const CudaDriver& driver, CUcontext context) : driver_(driver) {
  POLYPATH_CHECK(driver, ctx_push_current(context));
  pushed_ = true;
}

CurrentContext::CurrentContext(const CudaDriver& driver, CUcontext context, std::nothrow_t) noexcept
    : driver_(driver) {
  const CUresult result = driver.ctx_push_current(context);
  pushed_ = result == CUDA_SUCCESS;
  if (!pushed_) warn_driver_error(driver, result, "ctx_push_current(context)");
}

CurrentContext::~CurrentContext() {
  if (!pushed_) return;
  CUcontext popped = nullptr;
  POLYPATH_WARN(driver_, ctx_pop_current(&popped));
}

bool is_special_stream(CUstream stream) noexcept {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

Stream::Stream(const CudaDriver& driver, CUcontext context) : driver_(driver) {
  const CurrentContext current(driver, context);
  POLYPATH_CHECK(driver, stream_create(&stream_, CU_STREAM_NON_BLOCKING));
}

Stream::~Stream() {
  if (stream_ != nullptr) POLYPATH_WARN(driver_, stream_destroy(stream_));
}

Event::Event(const CudaDriver& driver, CUcontext context, unsigned flags) : driver_(driver) {
  const CurrentContext current(driver, context);
  POLYPATH_CHECK(driver, event_create(&event_, flags));
}

Event::~Event() {
  if (event_ != nullptr) POLYPATH_WARN(driver_, event_destroy(event_));
}

double elapsed_us(const CudaDriver& driver, const Event& start, const Event& end) {
  float milliseconds = 0;
  POLYPATH_CHECK(driver, event_elapsed_time(&milliseconds, start.get(), end.get()));
  return 1e3 * static_cast<double>(milliseconds);
}

}  // namespace polypath
