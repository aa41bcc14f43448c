// Resets of primary contexts and the end of the process, and the background threads that must not
// meet them: those that free what a communicator has on a GPU.
//
//   lose_contexts(gpu)       all PrimaryContext of the GPU are lost, before it is reset
//   ContextInUse             no reset that was announced later begins while it lives
//   wait_for_context_users() before the reset
#pragma once

#include <chrono>
#include <shared_mutex>

#include "driver/resources.hpp"

namespace polypath {

/// Held while a background thread calls the driver for objects of a context. Any thread.
class ContextInUse {
 public:
  explicit ContextInUse(const PrimaryContext& context);
  ContextInUse(const ContextInUse&) = delete;
  ContextInUse& operator=(const ContextInUse&) = delete;

  /// False: the context was reset, or the process ends: none of its objects may be named to the
  /// driver any more.
  explicit operator bool() const noexcept { return is_there_; }

 private:
  std::shared_lock<std::shared_timed_mutex> lock_;
  bool is_there_;
};

/// The GPU is going to be reset.
void lose_contexts(CUdevice gpu) noexcept;
/// The process ends: from now on no ContextInUse has its context.
void lose_contexts_at_exit() noexcept;
/// Until no ContextInUse has its context that is lost, but no longer than `limit`: a call of the
/// driver may wait for a kernel.
void wait_for_context_users(std::chrono::milliseconds limit) noexcept;

}  // namespace polypath
