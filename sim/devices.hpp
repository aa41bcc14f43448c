// The devices of the node: whoever runs the operations that the C functions issue. Two kinds are
// behind this interface: virtual time (virtual_devices.hpp) and worker threads
// (threaded_devices.hpp). What an operation is, and what it waits for, is the same for both.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "copy_engines.hpp"
#include "operation.hpp"

namespace polypath::sim {

// How a blocked thread waits for another one of the program, in real time.
inline constexpr auto kPollInterval = std::chrono::microseconds(50);
inline constexpr auto kMaxPollInterval = std::chrono::milliseconds(1);
/// The time between two looks, when nothing has come for so long: the end of a wait is noticed late
/// by a quarter of it at most, and a long wait takes no core from those that it is for.
inline std::chrono::steady_clock::duration poll_interval(
    std::chrono::steady_clock::duration idle) noexcept {
  return std::clamp<std::chrono::steady_clock::duration>(idle / 4, kPollInterval, kMaxPollInterval);
}
inline constexpr auto kComplainAfter = std::chrono::seconds(10);
// ... and how long it has, each time, when kernels have given up.
inline constexpr auto kTakesNote = std::chrono::milliseconds(100);

// The driver's lock. Worker threads go first: a program that polls in a loop could otherwise keep
// them for long from reporting what it polls for.

class DriverMutex {
 public:
  void lock() {
    while (true) {
      while (workers_.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
      mutex_.lock();
      if (alone_ == std::thread::id() || alone_ == std::this_thread::get_id()) return;
      mutex_.unlock();
      std::this_thread::sleep_for(kPollInterval);
    }
  }
  void unlock() { mutex_.unlock(); }

  /// Made and destroyed under the lock: where the calling thread gives it back to wait, no other
  /// one of the program gets it; worker threads do.
  class Alone {
   public:
    explicit Alone(DriverMutex& mutex) : mutex_(mutex) {
      mutex_.alone_ = std::this_thread::get_id();
    }
    ~Alone() { mutex_.alone_ = {}; }
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;

   private:
    DriverMutex& mutex_;
  };
  /// Under the lock.
  [[nodiscard]] bool is_alone() const { return alone_ != std::thread::id(); }

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
  std::thread::id alone_;
};

/// All functions are called under the driver's lock.
class Devices {
 public:
  virtual ~Devices() = default;

  /// Time of the CPU, microseconds since cuInit.
  [[nodiscard]] virtual double clock_us() const = 0;
  /// The CPU spends time in a call.
  virtual void spend(double us) = 0;
  /// The CPU does something else for so long; the lock may be released meanwhile.
  virtual void pass(double us) = 0;

  /// From now on, or no longer (0), the calling thread issues work: see polypath_sim_issuing().
  virtual void set_issuing(int number) = 0;
  /// Waits for the calling thread's turn among them: see polypath_sim_turn().
  virtual void take_turn() = 0;

  /// Starts traffic of others now, or at its begin where that is later. `from_file`: of the node
  /// file, so that other processes have it as well. Returns its id, at least 1.
  virtual int start_traffic(TrafficFlow flow, bool from_file) = 0;
  /// Of an unknown id: does nothing, is 0.
  virtual void stop_traffic(int id) = 0;
  virtual std::uint64_t traffic_blocks(int id) = 0;
  virtual int traffic_queued(int id) = 0;

  /// Lets the operation run as soon as what it waits for has completed.
  virtual OperationPtr issue(Operation operation) = 0;
  /// Lets the devices catch up with the CPU.
  virtual void catch_up() = 0;
  /// Blocks until `holds`. The lock may be released meanwhile: handles have to be looked up anew
  /// afterwards. Failure UNKNOWN when nothing is left that could make it hold.
  virtual void wait_until(const std::function<bool()>& holds) = 0;
  /// Blocks until the operation has completed, as wait_until.
  virtual void wait(const OperationPtr& operation) = 0;
};

}  // namespace polypath::sim
