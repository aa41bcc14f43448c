#include "exec/event_pool.hpp"

#include <cstddef>

#include "driver/check.hpp"
#include "driver/context_guard.hpp"

namespace polypath {

EventPool::EventPool(std::shared_ptr<const CudaDriver> driver, Devices& devices, unsigned flags)
    : driver_(std::move(driver)),
      devices_(devices),
      flags_(flags),
      events_(static_cast<std::size_t>(devices.count())) {}

EventPool::~EventPool() {
  for (int gpu = 0; gpu < devices_.count(); ++gpu) {
    if (!devices_.alive(gpu)) continue;
    for (const CUevent event : events_[static_cast<std::size_t>(gpu)].all)
      POLYPATH_WARN(*driver_, event_destroy(event));
  }
}

CUevent EventPool::create(int gpu, Events& events) {
  ContextGuard guard(*driver_);
  guard.use(devices_.context(gpu));
  CUevent event = nullptr;
  POLYPATH_CHECK(*driver_, event_create(&event, flags_));
  try {
    const std::lock_guard lock(events.mutex);
    events.all.reserve(events.all.size() + 1);
    events.free.reserve(events.all.size() + 1);
    events.all.push_back(event);
  } catch (...) {
    POLYPATH_WARN(*driver_, event_destroy(event));
    throw;
  }
  return event;
}

CUevent EventPool::acquire(int gpu) {
  Events& events = events_[static_cast<std::size_t>(gpu)];
  {
    const std::lock_guard lock(events.mutex);
    if (!events.free.empty()) {
      const CUevent event = events.free.back();
      events.free.pop_back();
      return event;
    }
  }
  return create(gpu, events);
}

void EventPool::release(int gpu, CUevent event) noexcept {
  Events& events = events_[static_cast<std::size_t>(gpu)];
  const std::lock_guard lock(events.mutex);
  events.free.push_back(event);
}

void EventPool::reserve(int gpu, std::size_t count) {
  Events& events = events_[static_cast<std::size_t>(gpu)];
  const auto free = [&] {
    const std::lock_guard lock(events.mutex);
    return events.free.size();
  };
  while (free() < count) release(gpu, create(gpu, events));
}

}  // namespace polypath
