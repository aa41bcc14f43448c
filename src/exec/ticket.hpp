// A ticket stands for one transfer in the queues of channels and rings. It answers the question of
// DESIGN's decision 5: may a later transfer queue behind this one?
#pragma once

#include <atomic>
#include <memory>

#include "exec/event_pool.hpp"

namespace polypath {

/// The stream of a caller, told apart even when a handle is used again for another stream.
struct CallerStream {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  unsigned long long id = 0;  ///< cuStreamGetId; 0 where the driver lacks it

  friend bool operator==(const CallerStream&, const CallerStream&) = default;
};

class Ticket {
 public:
  /// `fork` is the event that the caller's stream records before anything of the transfer.
  Ticket(CallerStream caller, std::shared_ptr<PooledEvent> fork)
      : caller_(caller), fork_(std::move(fork)) {}

  [[nodiscard]] CUevent fork() const noexcept { return fork_->get(); }
  [[nodiscard]] const CallerStream& caller() const noexcept { return caller_; }

  /// Whether all that the caller's stream held before the transfer has completed, so that the transfer
  /// waits for nothing but itself.
  bool started(const CudaDriver& driver) {
    if (!started_ && driver.event_query(fork()) == CUDA_SUCCESS) started_ = true;
    return started_;
  }

  /// Whether work of `other` may queue behind work of this transfer: it has started, or `other` comes
  /// after it on the same stream anyway.
  bool allows(const Ticket& other, const CudaDriver& driver) {
    return caller_ == other.caller_ || started(driver);
  }

 private:
  CallerStream caller_;
  std::shared_ptr<PooledEvent> fork_;
  bool started_ = false;
};

}  // namespace polypath
