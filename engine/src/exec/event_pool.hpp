// Events by GPU, used over and over; without timing, unless that is asked for.
//
// An event may be recorded again as soon as the waits for its last record were issued: a stream's
// wait holds the record that it saw, not the event. So one event serves many chunks of one
// transfer.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "exec/devices.hpp"

namespace polypath {

/// Thread-safe; its locks, one a GPU, are not held over calls of the driver.
class EventPool {
 public:
  EventPool(std::shared_ptr<const CudaDriver> driver, Devices& devices,
            unsigned flags = CU_EVENT_DISABLE_TIMING);
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// An event of `gpu`'s context, for the caller alone until it is released. Throws DriverError.
  CUevent acquire(int gpu);
  void release(int gpu, CUevent event) noexcept;
  /// Creates events ahead, so that acquire() need not.
  void reserve(int gpu, std::size_t count);

 private:
  struct Events {
    std::mutex mutex;
    std::vector<CUevent> free;  // has room for all
    std::vector<CUevent> all;
  };
  CUevent create(int gpu, Events& events);

  std::shared_ptr<const CudaDriver> driver_;
  Devices& devices_;
  unsigned flags_;
  std::deque<Events> events_;  // by GPU
};

/// An event that goes back to its pool with its last owner.
class PooledEvent {
 public:
  PooledEvent(EventPool& pool, int gpu) : pool_(pool), gpu_(gpu), event_(pool.acquire(gpu)) {}
  ~PooledEvent() { pool_.release(gpu_, event_); }
  PooledEvent(const PooledEvent&) = delete;
  PooledEvent& operator=(const PooledEvent&) = delete;

  [[nodiscard]] CUevent get() const noexcept { return event_; }
  /// Whether the work before its record has completed. For an event that is recorded once, before
  /// the first question: the driver is not asked again after it has said so. Thread-safe.
  [[nodiscard]] bool has_completed(const CudaDriver& driver) noexcept {
    if (has_completed_.load(std::memory_order_acquire)) return true;
    if (driver.event_query(event_) != CUDA_SUCCESS) return false;
    has_completed_.store(true, std::memory_order_release);
    return true;
  }

 private:
  EventPool& pool_;
  int gpu_;
  CUevent event_;
  std::atomic<bool> has_completed_{false};
};

}  // namespace polypath
