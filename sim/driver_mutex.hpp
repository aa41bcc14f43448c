// The driver's lock. Worker threads go first: a program that polls in a loop could otherwise keep them for
// long from reporting what it polls for.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace polypath::sim {

class DriverMutex {
 public:
  void lock() {
    while (workers_.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
    mutex_.lock();
  }
  void unlock() { mutex_.unlock(); }

  /// The same lock, as worker threads take it.
  class ForWorkers {
   public:
    explicit ForWorkers(DriverMutex& mutex) : mutex_(mutex) {}
    void lock() {
      mutex_.workers_.fetch_add(1, std::memory_order_relaxed);
      mutex_.mutex_.lock();
      mutex_.workers_.fetch_sub(1, std::memory_order_relaxed);
    }
    void unlock() { mutex_.mutex_.unlock(); }

   private:
    DriverMutex& mutex_;
  };

 private:
  std::mutex mutex_;
  std::atomic<int> workers_{0};  // that wait for it
};

}  // namespace polypath::sim
