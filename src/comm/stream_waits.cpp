#include "comm/stream_waits.hpp"

#include <algorithm>

#include "comm/kernels/images.hpp"
#include "driver/check.hpp"

namespace polypath {

bool is_captured(const CudaDriver& driver, CUstream stream) {
  if (driver.stream_is_capturing == nullptr) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  POLYPATH_CHECK(driver, stream_is_capturing(stream, &status));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

StreamWaits::StreamWaits(const CudaDriver& driver, CUcontext context)
    : driver_(driver), context_(context) {
  const CurrentContext current(driver, context);
  module_ = KernelModule::of(driver, context, stream_wait_image());
  wait_ = module_->function("polypath_stream_wait");
  signals_ = module_->function("polypath_stream_signals");
  puts_ = module_->function("polypath_stream_puts");
}

void StreamWaits::wait(StreamWaitArgs args, CUstream stream) {
  launch({wait_, 1, kStreamWaitThreads, /*waits=*/true}, &args, stream);
}

void StreamWaits::signal(StreamSignalArgs args, CUstream stream) {
  launch({signals_, 1, kStreamWaitThreads, args.awaited_count > 0}, &args, stream);
}

void StreamWaits::put(StreamPutArgs args, CUstream stream) {
  const bool waits = args.wait_count > 0;
  launch({puts_, args.put_blocks + (waits ? 1 : 0), kStreamPutThreads, waits}, &args, stream);
}

void StreamWaits::launch(const Launch& launch, void* args, CUstream stream) {
  const auto go = [&] {
    POLYPATH_CHECK(driver_, launch_kernel(launch.kernel, launch.blocks, 1, 1, launch.threads, 1, 1,
                                          0, stream, &args, nullptr));
  };
  if (!launch.waits || is_captured(driver_, stream)) return go();
  std::list<Event> after;
  {
    const std::lock_guard lock(mutex_);
    if (pending_.size() >= sweep_at_) sweep();
    if (!free_.empty()) after.splice(after.end(), free_, free_.begin());
  }
  if (after.empty()) after.emplace_back(driver_, context_, CU_EVENT_DISABLE_TIMING);
  go();
  POLYPATH_CHECK(driver_, event_record(after.front().get(), stream));
  const std::lock_guard lock(mutex_);
  pending_.splice(pending_.end(), after);
}

void StreamWaits::sweep() {
  for (auto next = pending_.begin(); next != pending_.end();) {
    const auto one = next++;
    if (driver_.event_query(one->get()) != CUDA_ERROR_NOT_READY)
      free_.splice(free_.end(), pending_, one);
  }
  sweep_at_ = std::max<std::size_t>(64, 2 * pending_.size());
}

bool StreamWaits::any() {
  const std::lock_guard lock(mutex_);
  sweep();
  return !pending_.empty();
}

}  // namespace polypath
