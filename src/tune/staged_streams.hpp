// The copies of a staged transfer by streams and events: what its graph is compared with.
#pragma once

#include <vector>

#include "driver/cuda_driver.hpp"
#include "tune/resources.hpp"
#include "tune/staged_transfer.hpp"

namespace polypath {

/// One stream a leg, one event a chunk from leg 0 to leg 1, and one from leg 1 back at the end, so that
/// all is ordered on the stream of leg 0 as a launched graph would be. Not thread-safe. Every member
/// may throw DriverError. The destructor waits for what was issued; its failures are logged.
class StagedStreams {
 public:
  /// `driver` and `transfer` must outlive it.
  StagedStreams(const CudaDriver& driver, const StagedTransfer& transfer);
  ~StagedStreams();
  StagedStreams(const StagedStreams&) = delete;
  StagedStreams& operator=(const StagedStreams&) = delete;

  /// Of leg 0, in its context.
  [[nodiscard]] CUstream stream() const noexcept { return first_.get(); }
  /// Issues all copies and returns. The thread's current context stays as it was.
  void issue(const StagedAddresses& at);

 private:
  const CudaDriver& driver_;
  const StagedTransfer& transfer_;
  Stream first_;
  Stream second_;
  std::vector<Event> staged_;  ///< by chunk: it is in the staging memory
  Event end_;
};

}  // namespace polypath
