// Symmetric memory that ranks take when they need it first, though none of them waits for another.
//
//   want()      a rank needs it: from now on a thread of this rank takes its own part, leaves a
//               note of it on the control segment, and opens the parts of others once all have
//   is_ready()  this rank reaches the parts of all ranks
//
// Whether all ranks are ready is for the caller to agree on (comm/call_levels.hpp).
#pragma once

#include <atomic>
#include <cstdint>

#include "base/task_queue.hpp"
#include "comm/symmetric_memory.hpp"

namespace polypath {

/// Defects that tests plant, to see that they find them.
enum class DeferredFault : std::uint8_t {
  none,
  used_early,   ///< rank 1 uses it as soon as it is ready itself
  used_late,    ///< rank 1 does not use it when the others begin to
  ready_early,  ///< ranks say that they are ready as soon as they have asked
};

/// One rank's. One thread at a time, but for is_ready() and bytes_taken().
class DeferredMemory {
 public:
  /// `memory`: as allocated, without addresses. `heap` must outlive it.
  DeferredMemory(SymmetricHeap& heap, SymmetricMemory memory);
  ~DeferredMemory();
  DeferredMemory(const DeferredMemory&) = delete;
  DeferredMemory& operator=(const DeferredMemory&) = delete;

  /// This rank needs it. Returns at once. Where memory is short, or something else fails, later
  /// calls try again, ever more seldom.
  void want();
  [[nodiscard]] bool was_wanted() const noexcept { return wanted_ > 0; }
  [[nodiscard]] bool is_ready() const noexcept;
  /// Whether a call may use it: when the ranks agree that all are ready.
  [[nodiscard]] bool may_use(bool is_agreed) const noexcept;
  /// Waits for what want() began.
  void wait() { taking_.wait(); }
  /// Zeroed, on all ranks. Throws Error before it is there.
  [[nodiscard]] const SymmetricMemory& memory() const;
  /// Bytes of this rank's GPU.
  [[nodiscard]] std::uint64_t bytes_taken() const noexcept { return bytes_taken_; }
  /// Ends the thread: nothing more is taken. To be called while the context is not held in use.
  void stop() noexcept;
  /// The same. Returns what was taken, which is the caller's. Nothing may use it any more.
  SymmetricHeap::Piece release() noexcept;

 private:
  enum class State : std::uint8_t { idle, taking, ready };

  /// On its thread.
  void take() noexcept;
  /// Throws Error. False: it was stopped, or the communicator aborted.
  bool take_all();

  SymmetricHeap& heap_;
  SymmetricMemory memory_;
  SymmetricHeap::Piece piece_;  // of the thread while it runs
  std::uint64_t wanted_ = 0;
  std::atomic<State> state_{State::idle};
  std::atomic<std::uint64_t> bytes_taken_{0};
  std::atomic<bool> is_stopped_{false};
  TaskQueue taking_{1};  // ends first
};

}  // namespace polypath
