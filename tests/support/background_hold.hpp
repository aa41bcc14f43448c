// Holds back what other threads prepare, so that a test sees what a context does without it,
// however late its own thread is.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "support/hooked_driver.hpp"

namespace polypath::test {

/// Each thread but the one that made it stops before its next hooked call of driver() until end().
/// One at a time (hooked_driver.hpp). A context with this driver ends after end().
class BackgroundHold {
 public:
  explicit BackgroundHold(const CudaDriver& driver)
      : hooked_(driver, [this](const std::string&) { pass(); }) {}
  ~BackgroundHold() { end(); }
  BackgroundHold(const BackgroundHold&) = delete;
  BackgroundHold& operator=(const BackgroundHold&) = delete;

  [[nodiscard]] std::shared_ptr<CudaDriver> driver() const { return hooked_.driver(); }

  void end() {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    ended_.notify_all();
  }

 private:
  void pass() {
    if (std::this_thread::get_id() == owner_) return;
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return has_ended_; });
  }

  const std::thread::id owner_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  HookedDriver hooked_;
};

}  // namespace polypath::test
