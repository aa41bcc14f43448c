// The devices of the node. They run the operations that the C functions issue. Two kinds implement
// this interface: virtual time (virtual_devices.hpp) and worker threads (threaded_devices.hpp).
// Operations and their waits are the same for both.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "copy_engines.hpp"
#include "operation.hpp"

namespace polypath::sim {

// How a blocked thread waits for another one of the program, in real time.
inline constexpr auto kPollInterval = std::chrono::microseconds(50);
inline constexpr auto kMaxPollInterval = std::chrono::milliseconds(1);
/// The time between two polls after `idle` without an event. The end of a wait is noticed late by a
/// quarter of its length at most, and a long wait takes no core from the threads that it waits for.
inline std::chrono::steady_clock::duration poll_interval(
    std::chrono::steady_clock::duration idle) noexcept {
  return std::clamp<std::chrono::steady_clock::duration>(idle / 4, kPollInterval, kMaxPollInterval);
}
inline constexpr auto kComplainAfter = std::chrono::seconds(10);
// The time that a program has, each time, to take note of kernels that timed out.
inline constexpr auto kTakesNote = std::chrono::milliseconds(100);

/// One thread that sleeps until another one wakes it, or until a time. It may wake for nothing.
class Sleeper {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void sleep(Time until = Time::max()) {
    std::unique_lock lock(mutex_);
    const auto is_over = [this] { return is_woken_; };
    if (until == Time::max())
      woken_.wait(lock, is_over);
    else
      woken_.wait_until(lock, until, is_over);
    is_woken_ = false;
  }
  void wake() {
    {
      const std::lock_guard lock(mutex_);
      is_woken_ = true;
    }
    woken_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  bool is_woken_ = false;
};
using SleeperPtr = std::shared_ptr<Sleeper>;

// The driver's lock. Worker threads go first: a program that polls in a loop could otherwise keep
// them for long from reporting what it polls for.

class DriverMutex {
 public:
  void lock() {
    while (true) {
      for (int waiting = workers_.load(); waiting > 0; waiting = workers_.load())
        workers_.wait(waiting);
      mutex_.lock();
      if (alone_ == std::thread::id() || alone_ == std::this_thread::get_id()) return;
      mutex_.unlock();
      std::this_thread::sleep_for(kPollInterval);
    }
  }
  void unlock() {
    if (to_wake_.empty()) return mutex_.unlock();
    const std::vector<SleeperPtr> woken = std::exchange(to_wake_, {});
    mutex_.unlock();
    for (const SleeperPtr& each : woken) each->wake();
  }
  /// Under the lock: wakes it as soon as the lock is given back, which it will want.
  void wake(SleeperPtr sleeper) { to_wake_.push_back(std::move(sleeper)); }

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
      mutex_.workers_.fetch_add(1);
      mutex_.mutex_.lock();
      if (mutex_.workers_.fetch_sub(1) == 1) mutex_.workers_.notify_all();
    }
    void unlock() { mutex_.unlock(); }

   private:
    DriverMutex& mutex_;
  };

 private:
  std::mutex mutex_;
  std::atomic<int> workers_{0};  // that wait for it
  std::vector<SleeperPtr> to_wake_;
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
  /// The CPU spends long in a call, as Mode::has_call_times says. The lock may be released
  /// meanwhile: to be called before the call looks anything up, or as the last.
  virtual void take_long(double us) = 0;
  /// The CPU does something else for `us`; the lock may be released meanwhile.
  virtual void pass(double us) = 0;

  /// From now on, or no longer (0), the calling thread issues work: see polypath_sim_set_issuer().
  virtual void set_issuing(int number) = 0;
  /// Waits for the calling thread's turn among them: see polypath_sim_wait_turn().
  virtual void take_turn() = 0;

  /// Starts traffic of others now, or at its begin where that is later. `from_file`: of the node
  /// file, so that other processes have it as well. Returns its id, at least 1.
  virtual int start_traffic(TrafficFlow flow, bool from_file) = 0;
  /// For an unknown id these do nothing, and return 0.
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
