#include "tune/staged_streams.hpp"

#include <cstddef>

#include "driver/check.hpp"
#include "exec/context_guard.hpp"

namespace polypath {

StagedStreams::StagedStreams(const CudaDriver& driver, const StagedTransfer& transfer)
    : driver_(driver),
      transfer_(transfer),
      first_(driver, transfer.context(0)),
      second_(driver, transfer.context(1)),
      end_(driver, transfer.context(1), CU_EVENT_DISABLE_TIMING) {
  for (std::size_t chunk = 0; chunk < transfer.chunks(); ++chunk)
    staged_.emplace_back(driver, transfer.context(0), CU_EVENT_DISABLE_TIMING);
}

StagedStreams::~StagedStreams() {
  for (const CUstream stream : {first_.get(), second_.get()})
    POLYPATH_WARN(driver_, stream_synchronize(stream));
}

void StagedStreams::issue(const StagedAddresses& at) {
  ContextGuard guard(driver_);
  for (std::size_t chunk = 0; chunk < transfer_.chunks(); ++chunk) {
    const CUevent staged = staged_[chunk].get();
    const StagedCopy to_staging = transfer_.copy(chunk, 0, at);
    guard.use(to_staging.context);
    POLYPATH_CHECK(driver_,
                   memcpy_async(to_staging.dst, to_staging.src, to_staging.bytes, first_.get()));
    POLYPATH_CHECK(driver_, event_record(staged, first_.get()));
    const StagedCopy onward = transfer_.copy(chunk, 1, at);
    guard.use(onward.context);
    POLYPATH_CHECK(driver_, stream_wait_event(second_.get(), staged, 0));
    POLYPATH_CHECK(driver_, memcpy_async(onward.dst, onward.src, onward.bytes, second_.get()));
  }
  POLYPATH_CHECK(driver_, event_record(end_.get(), second_.get()));
  guard.use(transfer_.context(0));
  POLYPATH_CHECK(driver_, stream_wait_event(first_.get(), end_.get(), 0));
}

}  // namespace polypath
