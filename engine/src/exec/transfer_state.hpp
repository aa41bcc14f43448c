// A ticket stands for one transfer in the queues of channels and rings. It answers the question of
// DESIGN's decision 5: may a later transfer queue after this one?
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "driver/check.hpp"
#include "exec/event_pool.hpp"

namespace polypath {

/// The stream of a caller, told apart even when a handle is used again for another stream.
struct CallerStream {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  unsigned long long id = 0;  ///< cuStreamGetId; where the driver lacks it anonymous_stream_id()

  friend bool operator==(const CallerStream&, const CallerStream&) = default;
};

/// An id that no other stream has: if the driver cannot tell streams apart, no two transfers are of
/// the same one.
unsigned long long anonymous_stream_id() noexcept;

/// Thread-safe.
class TransferState {
 public:
  /// `fork` is the event that the caller's stream will record before anything of the transfer.
  TransferState(CallerStream caller, std::shared_ptr<PooledEvent> fork)
      : caller_(caller), fork_(std::move(fork)), created_(tick()) {}
  /// For a later transfer in the sequence that `first` begins: it has the same fork.
  explicit TransferState(const TransferState& first)
      : caller_(first.caller_), fork_(first.fork_), created_(first.created_), in_sequence_(true) {
    recorded_ = first.recorded_.load();
    started_ = first.started_.load();
  }
  TransferState& operator=(const TransferState&) = delete;

  [[nodiscard]] CUevent fork() const noexcept { return fork_->get(); }
  [[nodiscard]] const std::shared_ptr<PooledEvent>& fork_event() const noexcept { return fork_; }
  [[nodiscard]] const CallerStream& caller() const noexcept { return caller_; }

  /// Whether it shares the fork of an earlier one.
  [[nodiscard]] bool in_sequence() const noexcept { return in_sequence_; }

  /// Records the fork, in the caller's context. May wait where the caller's own stream is full.
  void record(const CudaDriver& driver) {
    POLYPATH_CHECK(driver, event_record(fork(), caller_.stream));
    recorded_ = true;
  }
  /// From here on the caller's stream waits for all of the transfer.
  void joined() noexcept { joined_ = tick(); }

  /// Whether all that the caller's stream held before the transfer has completed, so that the
  /// transfer waits for nothing but itself.
  bool started(const CudaDriver& driver) {
    // An event that was never recorded counts as completed.
    if (!started_ && recorded_ && driver.event_query(fork()) == CUDA_SUCCESS) started_ = true;
    return started_;
  }

  /// Whether work of `other` may queue after work of this transfer: it has started, or `other`
  /// comes after it on the same stream anyway.
  bool allows(const TransferState& other, const CudaDriver& driver) {
    return caller_ == other.caller_ || started(driver);
  }

  /// Whether this transfer's fork comes after the end of `other` on one stream. Two threads that
  /// use one stream at once give it forks and ends in any order.
  [[nodiscard]] bool follows(const TransferState& other) const noexcept {
    const std::uint64_t joined = other.joined_;
    return caller_ == other.caller_ && joined != 0 && joined < created_;
  }

 private:
  static std::uint64_t tick() noexcept;

  CallerStream caller_;
  std::shared_ptr<PooledEvent> fork_;
  std::uint64_t created_;  // before its fork
  bool in_sequence_ = false;
  std::atomic<bool> recorded_{false};
  std::atomic<bool> started_{false};
  std::atomic<std::uint64_t> joined_{0};  // 0: not yet
};

}  // namespace polypath
