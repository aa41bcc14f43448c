#include "comm/stream_waits.hpp"

#include <algorithm>
#include <iterator>

#include "comm/kernels/images.hpp"
#include "driver/check.hpp"
#include "exec/block_copier.hpp"
#include "exec/transfer_state.hpp"

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
  module_ = KernelModule::load(driver, context, stream_wait_image());
  wait_ = module_->function("polypath_stream_wait");
  signals_ = module_->function("polypath_stream_signals");
  puts_ = module_->function("polypath_stream_puts");
  exchange_begin_ = module_->function("polypath_exchange_begin");
  exchange_end_ = module_->function("polypath_exchange_end");
  // The driver loads none while these wait.
  block_copies_ = BlockCopier::load_kernel(driver, context);
}

void StreamWaits::wait(StreamWaitArgs args, CUstream stream) {
  launch({wait_, 1, kStreamWaitThreads, /*waits=*/true}, &args, stream);
}

void StreamWaits::signal(StreamSignalArgs args, CUstream stream) {
  launch({signals_, 1, kStreamWaitThreads, args.awaited_count > 0}, &args, stream);
}

void StreamWaits::begin_exchange(ExchangeArgs args, CUstream stream) {
  launch({exchange_begin_, 1, kStreamWaitThreads, /*waits=*/false}, &args, stream);
}

void StreamWaits::end_exchange(ExchangeArgs args, CUstream stream) {
  launch({exchange_end_, 1, kStreamWaitThreads, /*waits=*/false}, &args, stream);
}

void StreamWaits::put(StreamPutArgs args, bool has_bytes, CUstream stream) {
  const bool waits = args.wait_count > 0;
  launch({puts_, args.put_blocks + (waits ? 1 : 0),
          has_bytes ? kStreamPutThreads : kStreamWaitThreads, waits},
         &args, stream);
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
    if (pending_count_ >= sweep_at_) sweep();
    if (!free_.empty()) after.splice(after.end(), free_, free_.begin());
  }
  if (after.empty()) after.emplace_back(driver_, context_, CU_EVENT_DISABLE_TIMING);
  unsigned long long id = anonymous_stream_id();
  if (driver_.stream_get_id != nullptr) POLYPATH_CHECK(driver_, stream_get_id(stream, &id));
  go();
  POLYPATH_CHECK(driver_, event_record(after.front().get(), stream));
  const std::lock_guard lock(mutex_);
  Pending& of_stream = pending_[id];
  of_stream.splice(of_stream.end(), after);
  ++pending_count_;
}

bool StreamWaits::has_come(const Event& event) const {
  return driver_.event_query(event.get()) != CUDA_ERROR_NOT_READY;
}

void StreamWaits::sweep() {
  // A question takes the driver longer than all else here: the last that has come is looked for.
  for (auto next = pending_.begin(); next != pending_.end();) {
    Pending& waits = next->second;
    // The first `done` have come; of the first `maybe` it is not known.
    std::size_t done = 0;
    std::size_t maybe = waits.size();
    auto behind_done = waits.begin();
    for (std::size_t asked = maybe; done < maybe; asked = (done + maybe + 1) / 2) {
      const auto last = std::next(behind_done, static_cast<std::ptrdiff_t>(asked - done - 1));
      if (has_come(*last)) {
        done = asked;
        behind_done = std::next(last);
      } else {
        maybe = asked - 1;
      }
    }
    pending_count_ -= done;
    free_.splice(free_.end(), waits, waits.begin(), behind_done);
    next = waits.empty() ? pending_.erase(next) : std::next(next);
  }
  sweep_at_ = std::max<std::size_t>(64, 2 * pending_count_);
}

bool StreamWaits::on_more_than(std::size_t streams) {
  const std::lock_guard lock(mutex_);
  if (pending_.size() > streams) sweep();
  return pending_.size() > streams;
}

}  // namespace polypath
